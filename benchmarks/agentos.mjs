// The same work by AgentOS's memory, on SQLite: `node agentos.mjs DIRECTORY FACTS BRAIN`.
// DIRECTORY is where `npm install @framers/agentos better-sqlite3` was run; FACTS has one a line; BRAIN is a new file.
// Prints one JSON object: seconds to add the first 1 000, each of the next 200, and to consolidate all.
// It commits without waiting for the disk (synchronous = NORMAL), and drops duplicates when they are added.

import fs from 'node:fs';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';

const [directory, facts, brain] = process.argv.slice(2);
const resolve = createRequire(`${directory}/`).resolve;
const { Memory } = await import(pathToFileURL(resolve('@framers/agentos/memory')));
const lines = fs.readFileSync(facts, 'utf8').split('\n').filter(Boolean);
const memory = await Memory.createSqlite(brain, { graph: true });

async function timed(work) {
  const began = performance.now();
  await work();
  return (performance.now() - began) / 1000;
}

async function add(some) {
  for (const line of some) await memory.remember(line);
}

const first = await timed(() => add(lines.slice(0, 1000)));
const next = (await timed(() => add(lines.slice(1000, 1200)))) / 200;
await add(lines.slice(1200));
const consolidate = await timed(() => memory.consolidate());
await memory.close();
console.log(JSON.stringify({ first, next, consolidate, count: lines.length }));
