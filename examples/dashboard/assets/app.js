// The page. All that comes from a job is set as textContent, so that it is text
// whatever it says; the Content-Security-Policy forbids every other way.

import { draw } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const csrf = document.querySelector("meta[name=csrf]").content;
const signs = { running: "▶", cancelling: "◼", completed: "✓", failed: "✗", cancelled: "◼", lost: "?", gone: "?" };

let jobs = []; // of all owners, by start
let states = null; // of the board before, by id
let picked = null; // the id of the job that is followed
let skew = 0; // our clock less that of the server
let source = null;

const rows = new Map(); // job id to its elements
const sections = new Map(); // owner number to its elements

function make(name, className, text = "") {
  const e = document.createElement(name);
  e.className = className;
  e.textContent = text;
  return e;
}

// set changes text only if need be: what is selected stays so.
function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}

function duration(ms) {
  const s = Math.max(0, ms) / 1000;
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 60) return Math.floor(s) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + Math.floor(s % 60) + " s";
  return Math.floor(s / 3600) + " h " + Math.floor((s % 3600) / 60) + " min";
}

// connect opens the one stream of this page. Another pick opens another.
function connect() {
  source?.close();
  source = new EventSource("events" + (picked ? "?job=" + encodeURIComponent(picked) : ""));
  const mine = source;
  source.onopen = () => set($("link"), "live");
  source.onerror = () => {
    set($("link"), "no connection; trying again");
    // A refusal is final for the browser, but not for us.
    if (mine.readyState === EventSource.CLOSED) setTimeout(() => mine === source && connect(), 3000);
  };
  source.addEventListener("board", (e) => {
    const { now, board } = JSON.parse(e.data);
    skew = Date.now() - now;
    showBoard(board);
  });
  source.addEventListener("tail", (e) => showTail(JSON.parse(e.data)));
}

function showBoard(board) {
  jobs = board.owners.flatMap((owner) => owner.jobs).sort((a, b) => a.started - b.started);
  tellEnds();
  keep(sections, new Set(board.owners.map((owner) => owner.number)));
  keep(rows, new Set(jobs.map((job) => job.id)));
  for (const owner of board.owners) showOwner(owner);
  $("empty").hidden = jobs.length > 0;
  set($("hidden"), board.hidden ? `${board.hidden} older jobs are not shown.` : "");
  if (picked === null && jobs.length > 0) {
    pick((jobs.find((job) => !job.ended) ?? jobs.at(-1)).id);
  }
  tick();
}

// tellEnds says what ended since the board before.
function tellEnds() {
  const before = states;
  states = new Map(jobs.map((job) => [job.id, job.ended]));
  if (before === null) return;
  const ends = jobs.filter((job) => job.ended && before.get(job.id) !== true);
  if (ends.length === 0) return;
  const said = ends.slice(0, 3).map((job) => `${job.tool} ${job.outcome}`).join("; ");
  set($("ends"), said + (ends.length > 3 ? `; and ${ends.length - 3} more ended` : ""));
}

// keep removes the elements of what is not shown any more.
function keep(elements, keys) {
  for (const [key, e] of elements) {
    if (keys.has(key)) continue;
    e.root.remove();
    elements.delete(key);
  }
}

function showOwner(owner) {
  let e = sections.get(owner.number);
  if (!e) {
    e = { root: make("div", "owner"), title: make("h2", ""), name: make("span", ""), slots: make("span", "slots"), list: make("ul", "") };
    e.title.id = "owner-" + owner.number;
    e.list.setAttribute("aria-labelledby", e.title.id);
    e.title.append(e.name, " ", e.slots);
    e.root.append(e.title, e.list);
    const next = [...sections].filter(([number]) => number > owner.number).sort((a, b) => a[0] - b[0])[0];
    $("owners").insertBefore(e.root, next ? next[1].root : null);
    sections.set(owner.number, e);
  }
  set(e.name, owner.name);
  set(e.slots, owner.closed ? "closed" : `${owner.running} of ${owner.max} places taken`);
  owner.jobs.forEach((job, i) => {
    const row = showJob(job).root;
    // Moving an element takes its focus, so it is moved only if need be.
    if (e.list.children[i] !== row) e.list.insertBefore(row, e.list.children[i] ?? null);
  });
}

function showJob(job) {
  let e = rows.get(job.id);
  if (!e) {
    e = { root: make("li", ""), pick: make("button", "pick"), outcome: make("span", ""), elapsed: make("span", "elapsed"), cancel: make("button", "cancel", "Cancel") };
    e.root.dataset.id = job.id;
    e.pick.type = e.cancel.type = "button";
    e.pick.title = job.id;
    e.pick.addEventListener("click", () => pick(job.id));
    e.cancel.addEventListener("click", () => cancel(job.id));
    e.root.append(e.pick, e.outcome, e.elapsed, e.cancel);
    rows.set(job.id, e);
  }
  const name = job.tag ? `${job.tool} (${job.tag})` : job.tool;
  set(e.pick, name);
  e.pick.setAttribute("aria-pressed", job.id === picked);
  e.root.className = "job" + (job.id === picked ? " picked" : "");
  e.outcome.className = "outcome " + job.state;
  set(e.outcome, `${signs[job.state] ?? ""} ${job.outcome}`);
  e.cancel.setAttribute("aria-label", "Cancel " + name);
  e.cancel.setAttribute("aria-disabled", job.state === "cancelling");
  // A button that goes would take the focus with it.
  if (job.ended && document.activeElement === e.cancel) e.pick.focus();
  e.cancel.hidden = job.ended;
  return e;
}

function pick(id) {
  if (id === picked) return;
  picked = id;
  set($("tail"), "");
  showStderr(null);
  for (const job of jobs) showJob(job);
  set($("title"), "Output of " + rows.get(id).pick.textContent);
  set($("about"), "");
  connect();
}

async function cancel(id) {
  const button = rows.get(id).cancel;
  if (button.getAttribute("aria-disabled") === "true") return;
  button.setAttribute("aria-disabled", true);
  let trouble = "no connection";
  try {
    const answer = await fetch(`jobs/${encodeURIComponent(id)}/cancel`, { method: "POST", headers: { "X-CSRF-Token": csrf } });
    if (answer.ok) return;
    trouble = (await answer.text()).trim();
  } catch {
    // Said below.
  }
  button.setAttribute("aria-disabled", false);
  set($("ends"), "It was not cancelled: " + trouble);
}

function showTail(tail) {
  if (tail.id !== picked) {
    if (tail.id === "") set($("about"), tail.note);
    return;
  }
  const about = [`${tail.total.toLocaleString("en")} bytes written`];
  if (tail.dropped) about.push(`${tail.dropped.toLocaleString("en")} dropped`);
  set($("about"), about.join(", ") + ". " + tail.note);
  if (tail.text !== null) follow($("tail"), tail.text);
  if (tail.stderr !== null) showStderr(tail.stderr);
}

function showStderr(text) {
  $("stderr").hidden = $("stderr-title").hidden = text === null;
  follow($("stderr"), text ?? "");
}

// follow shows text, and its end unless the reader has scrolled away from it.
function follow(pre, text) {
  const atEnd = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
  set(pre, text);
  if (atEnd) pre.scrollTop = pre.scrollHeight;
}

// tick shows the passing of time, of which the server says nothing.
function tick() {
  if (document.hidden) return;
  const now = Date.now() - skew;
  for (const job of jobs) {
    set(rows.get(job.id).elapsed, duration(job.ended ? job.elapsed : now - job.started));
  }
  draw($("chart"), jobs, now);
}

setInterval(tick, 1000);
new ResizeObserver(tick).observe($("timeline"));
connect();
