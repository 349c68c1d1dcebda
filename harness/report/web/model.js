'use strict';
const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId('data').textContent);

// A row is [sequence, ns, kind, process, thread, name, key, value, text]; a torn one is [sequence].
const events = data.events.map((row, i) => ({
  i, seq: row[0], t: row[1], kind: row.length > 1 ? data.kinds[row[2]] : 'torn',
  process: row[3], thread: row[4], name: data.names[row[5]] ?? '', key: row[6], value: row[7],
  text: row[8] ?? '', lane: null, span: null, shown: true, match: true}));
// A torn event has no time; a lane's times never run backwards.
events.forEach((e, i) => { e.t ??= i > 0 ? events[i - 1].t : 0; });
const indexOf = new Map(events.map((e) => [e.seq, e.i]));

function title(e) {
  switch (e.kind) {
    case 'point': return `${e.name}[${e.key}]#${e.value}`;
    case 'done': return `${e.name}[${e.key}] \u2192 ${e.value}`;
    case 'note': return `${e.name}[${e.key}]` + (e.value === 0 ? '' : ` = ${e.value}`);
    case 'acted': return `${e.text} at ${e.name}`;
    case 'released': return `released at ${e.name}`;
    case 'call': return `${e.name} (${e.text})`;
    case 'return': return `${e.name} \u2192 ${e.key === 1 ? 'error ' : ''}${e.text}`;
    case 'log': return `${['info', 'warning', 'error'][e.key] ?? 'log'}: ${e.text}`;
    case 'registered': return `process ${e.text}`;
    case 'thread': return `thread ${e.text}`;
    case 'announced': return `${e.name} = ${e.text}`;
    case 'crash': return `crashed by signal ${e.value}`;
    case 'clock': return `clock at ${e.value / 1e9} s`;
    case 'drill': return drillTitle(e);
    case 'torn': return 'torn: its writer died while writing it';
  }
  return e.kind;
}
function drillTitle(e) {
  switch (e.name) {
    case 'step': return `${e.key}. ${e.text}`;
    case 'advance': return `clock moved by ${duration(e.value)}`;
    case 'ended': case 'client': return e.text;
    case 'failed': return `failed: ${e.text}`;
  }
  return `${e.name} ${e.text}`;
}
function duration(ns) {
  const s = ns < 0 ? '-' : '', n = Math.abs(ns);
  if (n < 1000) return `${s}${n} ns`;
  if (n < 1e6) return `${s}${+(n / 1e3).toFixed(1)} \u00b5s`;
  return n < 1e9 ? `${s}${+(n / 1e6).toFixed(3)} ms` : `${s}${+(n / 1e9).toFixed(3)} s`;
}

// --- lanes: the drill's, one a raw client, one a thread
const lanes = [], laneOf = new Map();
function lane(id, label, process, kind) {
  let one = laneOf.get(id);
  if (!one) {
    one = {id, label, process, kind, events: [], spans: [], marks: [], depth: 0, end: null};
    laneOf.set(id, one);
    lanes.push(one);
  }
  return one;
}
const drillLane = lane('drill', 'drill', 0, 'drill');
const clients = new Set();
for (const e of events) {
  const who = e.kind === 'drill' && e.name === 'step' && /^(\S+) connects to /.exec(e.text);
  if (who) clients.add(who[1]);
}
for (const name of clients) lane(`client ${name}`, `client ${name}`, 0, 'client');
// Process 0 is the supervisor, whose events are the drill's.
data.processes.forEach((p, process) => process > 0 && p.threads.forEach((thread, i) => {
  lane(`${process}.${i}`, thread.label || `thread ${i}`, process, 'thread').tid = thread.tid;
}));
for (const e of events) {
  const client = e.kind === 'drill' && e.name === 'client' &&
                 laneOf.get(`client ${e.text.split(' ', 1)[0]}`);
  if (client) e.lane = client;
  else if (e.kind === 'drill') e.lane = drillLane;
  else if (e.kind === 'torn') e.lane = lane('torn', 'torn records', 0, 'torn');
  else e.lane = lane(`${e.process}.${e.thread}`, `thread ${e.thread}`, e.process, 'thread');
  e.lane.events.push(e);
}
// Threads of a process stand together, however late one of them was first seen.
lanes.sort((a, b) => (a.id === 'torn') - (b.id === 'torn') || a.process - b.process);

// --- deaths
data.processes.forEach((p, i) => {
  p.ended = p.pid ? events.find((e) => e.kind === 'drill' && e.name === 'ended' &&
                                         e.key === p.pid) ?? null : null;
  for (const one of lanes) if (one.process === i && one.kind === 'thread') one.end = p.ended;
});

// --- spans
// Names that end somewhere: only of these can a point without its end be called unfinished.
const ending = new Set(events.filter((e) => e.kind === 'done').map((e) => e.name));

function span(on, kind, from, to, text) {
  const made = {lane: on, kind, from, to, text, depth: 0, bad: false};
  on.spans.push(made);
  return made;
}
// What an event opens on its thread, as a word that its end will say too; null: nothing.
function opens(e) {
  switch (e.kind) {
    case 'call': return `call ${e.value}`;
    case 'acted': return e.text === 'hold' || e.text === 'freeze' ? `hold ${e.value}` : null;
    case 'point':
      if (ending.has(e.name)) return `step ${e.name} ${e.key}`;  // fall through
    case 'note':
      return e.name.endsWith('.begin') ? `section ${e.name.slice(0, -6)} ${e.key}` : null;
  }
  return null;
}
function closes(e) {
  switch (e.kind) {
    case 'return': return `call ${e.value}`;
    case 'released': return `hold ${e.value}`;
    case 'done': return `step ${e.name} ${e.key}`;
    case 'note': case 'point': {
      const cut = /^(.*)\.(end|return)$/.exec(e.name);
      return cut ? `section ${cut[1]} ${e.key}` : null;
    }
  }
  return null;
}
// A begin that has no end of its own is a mark like any other.
function unopen(open, at) {
  for (const s of open.splice(at)) {
    s.from.span = null;
    s.lane.spans.splice(s.lane.spans.lastIndexOf(s), 1);
  }
}
function closeSpan(open, e, word) {
  const at = open.findLastIndex((s) => s.word === word);
  if (at < 0) return;
  const ended = open[at];
  unopen(open, at + 1);
  open.pop();
  ended.to = e;
  ended.bad = e.kind === 'return' && e.key === 1;
  e.span = ended;
}
function findSpans(one) {
  const open = [];
  for (const e of one.events) {
    const close = closes(e), word = opens(e);
    if (close) closeSpan(open, e, close);
    // A step that is skipped has no end; one that begins again had none.
    const none = open.findLastIndex((s) => s.word === word ||
      (e.kind === 'acted' && e.text === 'skip' && s.from.name === e.name));
    if (none >= 0) unopen(open, none);
    if (!word) continue;
    const kind = word.slice(0, word.indexOf(' '));
    const text = kind === 'section' ? e.name.slice(0, -6) : kind === 'hold' ? `held at ${e.name}`
                                                                           : title(e);
    e.span = Object.assign(span(one, kind, e, null, text), {word});
    open.push(e.span);
  }
}
// Rows: what is open when a span begins lies above it.
function stackSpans(one) {
  const rows = [];
  for (const s of one.spans) {
    const end = s.to ? s.to.i : Infinity;
    let row = 0;
    while (rows[row] > s.from.i) ++row;
    rows[row] = end;
    s.depth = row;
    one.depth = Math.max(one.depth, row + 1);
  }
}
function findSteps() {
  let last = null, at = null;
  for (const e of drillLane.events) {
    if (e.name === 'failed' && last) for (const s of at) s.bad = true;
    if (e.name !== 'step') continue;
    if (last) for (const s of at) s.to = e;
    at = [span(drillLane, 'drill', e, null, title(e))];
    const who = e.text.slice(0, e.text.indexOf(' '));
    if (clients.has(who)) {
      at.push(span(laneOf.get(`client ${who}`), 'client', e, null, e.text.slice(who.length + 1)));
    }
    e.span = at[0];
    last = e;
  }
}
findSteps();
for (const one of lanes) {
  if (one.kind === 'thread') findSpans(one);
  stackSpans(one);
  one.marks = one.events.filter((e) => !e.span || e.kind === 'acted');
}

// --- which are worth a mark that nothing hides
function color(e) {
  switch (e.kind) {
    case 'point': return 'point';
    case 'note': case 'done': return 'note';
    case 'acted': case 'released': return 'warn';
    case 'log': return e.key >= 2 ? 'fail' : e.key === 1 ? 'warn' : 'quiet';
    case 'crash': case 'torn': return 'fail';
    case 'clock': return 'clock';
    case 'drill': return e.name === 'failed' || e.name === 'cut short' ? 'fail'
                       : e.name === 'advance' ? 'clock' : 'quiet';
  }
  return 'quiet';
}
for (const e of events) {
  e.color = color(e);
  e.loud = e.color === 'fail' || e.color === 'warn' || e.name === 'advance';
}
const unjudged = data.checks.filter((c) => c.verdict === 'not judged');
const failed = data.checks.filter((c) => c.verdict !== 'pass' && c.verdict !== 'not judged');
failed.forEach((c) => { c.events = c.moments.map((seq) => events[indexOf.get(seq)])
                                            .filter((e) => e); });

// --- where on the x axis
const total = {equal: 1, time: 1000};
function place() {
  let n = 0, base = events.length ? Math.min(0, events[0].t) : 0;
  for (const e of events) {
    e.equal = n;
    e.time = e.t - base;
    if (e.shown) ++n;
    total.time = Math.max(total.time, e.time);
  }
  total.equal = Math.max(1, n);
}
// Whether the picture would be empty for the most part, and crowded in the rest.
function squeezed() {
  const bins = new Set(events.map((e) => Math.floor(e.time / total.time * 100)));
  return bins.size < .4 * Math.min(100, events.length);
}
place();
