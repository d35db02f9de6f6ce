// The chat. What is shown of a conversation comes from its event stream; what is typed is kept in this browser until the
// gateway says that it has it. Each part is a module of its own; here they are joined.

import { $, page } from "./page.js";
import { onInput, restoreDraft, takeBack, updateSendButton } from "./composer.js";
import { chosen, isReadingFiles, restoreFiles } from "./files.js";
import { lookAgain } from "./list.js";
import { flush, isEmpty, post, restoreOutbox, use, wasSaid } from "./outbox.js";
import { adopt, on, shown, state } from "./said.js";
import { toEnd } from "./scroll.js";
import { listen } from "./stream.js";
import "./versions.js";

on({
  onChoice: (words) => { post(words); $("text").focus(); },
  onSaid: wasSaid,
  onBusy: updateSendButton,
  onMessage: () => { if (state.isLive && page.events) lookAgain(); },
});
use({ takeBack, draft: () => $("text").value, files: chosen, isReading: isReadingFiles });

for (const article of document.querySelectorAll("[data-key]")) adopt(article);
restoreFiles();
restoreDraft();
restoreOutbox();
onInput();
if (page.events) {
  listen(() => {
    if (!state.isLive) {
      state.isLive = true;
      $("welcome").hidden = shown.size > 0 || !isEmpty();
      toEnd();
    }
    flush();
  });
} else {
  flush();
}
