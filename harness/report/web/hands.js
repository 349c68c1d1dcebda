'use strict';
// --- all fields of an event, for tooltip and pin
function fields(e, s) {
  const p = data.processes[e.process], lines = [];
  const who = e.kind === 'drill' ? 'drill' : e.kind === 'torn' ? 'unknown'
    : `${p?.name ?? `process ${e.process}`}/${e.lane.label}`;
  const ids = e.kind === 'drill' || e.kind === 'torn' ? '' : `  (pid ${p?.pid}, tid ${e.lane.tid})`;
  lines.push(title(e));
  lines.push(`event ${e.seq}  ${e.kind}  at ${(e.t / 1e6).toFixed(6)} ms  in ${who}${ids}`);
  if (e.kind !== 'torn') {
    lines.push(`name ${e.name || '-'}  key ${e.key}  value ${e.value}` + hex(e));
    if (e.text && !title(e).endsWith(e.text)) lines.push(`text ${e.text}`);
  }
  if (s) {
    const to = s.to ? `to event ${s.to.seq}, ${duration(s.to.t - s.from.t)}`
      : `not ended${s.lane.end ? ' before its process died' : ''}, ` +
        `${duration(endOf(s).t - s.from.t)} so far`;
    const result = s.to && s.kind === 'step' ? `, result ${s.to.value}`
      : s.to?.kind === 'return' ? `, ${s.to.key === 1 ? 'error' : 'answer'} ${s.to.text}` : '';
    lines.push(`${spanWord[s.kind]} from event ${s.from.seq} ${to}${result}`);
  }
  for (const c of failed) {
    if (!c.events.includes(e)) continue;
    lines.push(`check '${c.name}' failed` + (title(e).endsWith(c.why) ? '' : `: ${c.why}`));
  }
  if (pinned && pinned !== e) {
    lines.push(`${duration(e.t - pinned.t)} and ${e.seq - pinned.seq} events after the pin`);
  }
  return lines.join('\n');
}
const spanWord = {step: 'took', call: 'call', section: 'section', hold: 'held', drill: 'step',
  client: 'client'};
const hex = (e) => e.key > 65535 ? `  (key 0x${BigInt(e.key).toString(16)})` : '';

// --- what is under a point of the canvas: {e, s}
function under(x, y) {
  if (x < kGutter || y < top0()) return null;
  const inside = y - top0() + view.y;
  const one = lanes.find((l) => inside >= l.y && inside < l.y + l.h);
  if (!one) return null;
  return inside - one.y < one.markRow + 1 ? markAt(one, x) : spanAt(one, x, inside - one.y) ;
}
function markAt(one, x) {
  let best = null, least = 9;
  const near = firstFrom(one.marks, atX(x - 9));
  for (let k = near; k < one.marks.length && xOf(one.marks[k]) <= x + 9; ++k) {
    const e = one.marks[k], off = Math.abs(xOf(e) - x) - (e.loud ? 2 : 0);
    if (e.shown && off < least) { least = off; best = e; }
  }
  return best && {e: best, s: best.span};
}
function spanAt(one, x, y) {
  const depth = Math.floor((y - one.markRow - 2) / kRow);
  let best = null;
  for (const s of one.spans) {
    if (!s.from.shown || s.depth !== depth) continue;
    const from = xOf(s.from) - 1;
    if (from > x) break;
    if (Math.max(from + 4, xOf(endOf(s))) >= x) best = s;
  }
  return best && {e: best.from, s: best};
}

// --- the pin
function pin(e, s) {
  pinned = e;
  const words = 'Point at something for its fields; click to pin it.';
  byId('details').textContent = e ? fields(e, s ?? e.span) : words;
  remember();
  redraw();
}
// Scrolls to it, and zooms in if it would not be told from its neighbours.
function show(e) {
  if (!e) return;
  if (!e.shown) { byId('only').checked = false; filter(); }
  let room = view.to - view.from;
  if (mode === 'equal') room = Math.min(room, (width - kGutter) / 12);
  if (e[mode] < view.from + room * .05 || e[mode] > view.from + room * .95 ||
      room < view.to - view.from) {
    view.from = e[mode] - room / 2;
    view.to = view.from + room;
  }
  reveal(e.lane);
  pin(e);
}
// Scrolls the lane into sight, with the name of its process where there is one above it.
function reveal(one) {
  const room = height - top0();
  if (one.head < view.y) view.y = one.head - 4;
  else if (one.y + one.h > view.y + room) view.y = one.y + one.h - room;
  clampView();
}
function step(by, list) {
  let at = list.indexOf(pinned);
  if (at < 0) at = firstFrom(list, pinned ? pinned[mode] : view.from) - (by > 0 ? 1 : 0);
  for (at += by; list[at]; at += by) if (list[at].shown) return show(list[at]);
}

// --- the filter: words that must, and -words that must not, be in an event
let matches = [];
const hay = (e) => e.hay ??= `${e.seq} ${e.lane.kind === 'thread'
  ? data.processes[e.process]?.name + '/' : ''}${e.lane.label} ${e.kind} ${e.name} ${title(e)} ${
  e.text}`.toLowerCase();
function filter() {
  const words = byId('search').value.toLowerCase().split(/\s+/).filter((w) => w && w !== '-');
  filtering = words.length > 0;
  const only = filtering && byId('only').checked, middle = events[nearest()];
  for (const e of events) {
    e.match = words.every((w) => w[0] === '-' ? !hay(e).includes(w.slice(1)) : hay(e).includes(w));
    e.shown = e.match || !only;
  }
  matches = filtering ? events.filter((e) => e.match) : [];
  shownEvents = only ? matches : events;
  const room = view.to - view.from, all = room >= bounds()[1] - bounds()[0];
  place();
  if (mode === 'equal' && middle) {
    view.from = all ? bounds()[0] : middle.equal - room / 2;
    view.to = all ? bounds()[1] : view.from + room;
  }
  byId('found').textContent = filtering ? `${matches.length} of ${events.length}` : '';
  clampView();
  remember();
  redraw();
}
function nearest() {
  return Math.max(0, Math.min(events.length - 1, firstFrom(events, (view.from + view.to) / 2)));
}

// --- moving
function zoom(factor, around) {
  const at = around ?? (pinned?.shown && xOf(pinned) > kGutter && xOf(pinned) < width
    ? pinned[mode] : (view.from + view.to) / 2);
  view.from = at - (at - view.from) * factor;
  view.to = at + (view.to - at) * factor;
  clampView();
  remember();
  redraw();
}
function pan(part, down) {
  const by = part * (view.to - view.from);
  view.from += by;
  view.to += by;
  view.y += down;
  clampView();
  remember();
  redraw();
}
function fit() {
  [view.from, view.to] = bounds();
  clampView();
  remember();
  redraw();
}
function setMode(next) {
  // The same events stay in sight.
  const first = events[Math.min(events.length - 1, firstFrom(events, view.from))];
  const last = events[Math.max(0, firstFrom(events, view.to) - 1)];
  const all = view.from <= bounds()[0] && view.to >= bounds()[1];
  mode = next;
  byId('equal').setAttribute('aria-pressed', mode === 'equal');
  if (all || !first) return fit();
  const margin = mode === 'equal' ? .5 : Math.max(100, (last.time - first.time) * .01);
  view.from = first[mode] - margin;
  view.to = last[mode] + margin;
  clampView();
  remember();
  redraw();
}
function setTheme(next) {
  document.documentElement.dataset.theme = next;
  readColors();
  redraw();
}
