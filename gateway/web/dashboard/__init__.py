"""The dashboard: what an operator sees and does in a browser, as pages that the server renders.

A page is a module in `pages/` with a `PAGE`, and a directory of templates; nothing else names it. A large page has
further modules, which add to the same `PAGE`.
`page.py` says what a page is, `page_context.py` is what every page is given (`context` below), and
`templates/dashboard/ui.html` has the pieces that pages are made of.

- Reading: `show(context, request)` below `@PAGE.route()` ends with `context.render(request, "people/index.html", …)`.
- Changing: `unlink(context, request, form)` below `@PAGE.form("/unlink", back=PAGE.path)` ends with
  `context.go(request, PAGE.path, "Unlinked.", undo=Undo(…))`. In the template each form begins with `{{ form_token }}`.
- What cannot be undone: `if not form.is_confirmed: return context.ask(request, form, …)` first.
- Live: a part with `id="list" {{ ui.live("list", "messages people") }}` is fetched again when one of these topics
  changes (`live.TOPICS`); a page that changes something says so with `context.live.changed("people")`.
- An `EthosError` that a handler lets through is shown on the page of `back`, else as a page of its own.
"""
