'use strict';
const canvas = byId('canvas'), ctx = canvas.getContext('2d', {alpha: false});
const kGutter = 190, kOverview = 22, kAxis = 20, kMarks = 16, kRow = 16, kFlags = 17, kHead = 20;
const kFont = '11px ui-monospace, "DejaVu Sans Mono", monospace';
let mode = squeezed() ? 'equal' : 'time';
const view = {from: 0, to: 1, y: 0};
let width = 0, height = 0, letter = 6.6, content = 0, lastMs = 0;
let pinned = null, hovered = null, filtering = false;
const shade = {};

function readColors() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['ink', 'soft', 'line', 'paper', 'raised', 'fail', 'warn', 'step', 'call',
    'section', 'hold', 'drill', 'client', 'barink', 'point', 'note', 'quiet', 'clock', 'dead',
    'mark', 'pin', 'density']) {
    shade[name] = style.getPropertyValue(`--${name}`).trim();
  }
}
const top0 = () => kOverview + kAxis + (failed.length ? kFlags : 0);
// Half an event of room at both ends, so that the first and the last can be pointed at.
const bounds = () => mode === 'equal' ? [-.5, total.equal - 1 + Math.max(.5, total.equal * .015)]
                                      : [-total.time * .005, total.time * 1.015];
const xOf = (e) => kGutter + (e[mode] - view.from) / (view.to - view.from) * (width - kGutter);
const atX = (x) => view.from + (x - kGutter) / (width - kGutter) * (view.to - view.from);

function layout() {
  let y = 4, process = 0;
  for (const one of lanes) {
    one.headed = one.kind === 'thread' && one.process !== process;
    process = one.process;
    one.head = y;
    if (one.headed) y += kHead;
    one.y = y;
    one.markRow = one.marks.length ? kMarks : 0;
    one.h = Math.max(kMarks, one.markRow + one.depth * kRow) + 5;
    y += one.h;
  }
  content = y + 6;
}
function resize() {
  const box = byId('view').getBoundingClientRect(), scale = window.devicePixelRatio || 1;
  width = Math.max(kGutter + 50, Math.floor(box.width));
  height = Math.floor(box.height);
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.font = kFont;
  letter = ctx.measureText('mmmmmmmmmm').width / 10;
  clampView();
}
function clampView() {
  const [low, high] = bounds(), least = mode === 'equal' ? 4 : Math.min(200, high - low);
  let room = Math.min(high - low, Math.max(least, view.to - view.from));
  view.from = Math.min(high - room, Math.max(low, view.from));
  view.to = view.from + room;
  view.y = Math.max(0, Math.min(view.y, content - (height - top0())));
}
const fitting = (text, room) => {
  const n = Math.floor(room / letter);
  return text.length <= n ? text : n < 3 ? '' : text.slice(0, n - 1) + '\u2026';
};
function print(text, x, y, room, ink) {
  const fit = fitting(text, room);
  if (!fit) return;
  ctx.fillStyle = ink;
  ctx.fillText(fit, x, y);
}
const faded = (e) => filtering && !e.match;

// Where a span ends that nothing ended: at its process's death, or at the end of the record.
const endOf = (s) => s.to ?? s.lane.end ?? events[events.length - 1];

function drawSpans(one, y) {
  // What is narrower than a pixel is drawn once a pixel and row.
  const drawn = new Array(one.depth).fill(-1);
  for (const s of one.spans) {
    if (!s.from.shown) continue;
    const from = xOf(s.from);
    if (from > width) break;
    const to = Math.max(from + 1, xOf(endOf(s)));
    if (to < kGutter || (to <= drawn[s.depth] && !s.bad)) continue;
    drawn[s.depth] = Math.ceil(to);
    drawSpan(s, Math.max(kGutter - 2, from), Math.min(width + 2, to), y + s.depth * kRow);
  }
}
function drawSpan(s, left, right, y) {
  const room = right - left;
  ctx.globalAlpha = faded(s.from) ? .2 : 1;
  ctx.fillStyle = shade[s.kind];
  ctx.fillRect(left, y + 1, Math.max(1, room - (room > 4 ? 1 : 0)), kRow - 3);
  if (s.bad || !s.to) {
    ctx.fillStyle = s.bad ? shade.fail : shade.warn;
    if (s.bad) ctx.fillRect(left, y + kRow - 4, Math.max(1, room), 2);
    else if (room > 3 && s.lane.kind === 'thread') ctx.fillRect(right - 3, y + 1, 2, kRow - 3);
  }
  if (room > 22) print(s.text, left + 3, y + 11, room - 6, shade.barink);
  if (s.from === pinned || (s.to === pinned && s.lane.kind === 'thread')) {
    ctx.strokeStyle = shade.pin;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(left + .5, y + .5, Math.max(2, room - 1), kRow - 2);
  }
  ctx.globalAlpha = 1;
}
function firstFrom(list, value) {
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle][mode] < value) low = middle + 1; else high = middle;
  }
  return low;
}
function drawMarks(one, y) {
  const marks = one.marks, begin = firstFrom(marks, atX(kGutter - 6));
  let end = firstFrom(marks, view.to);
  while (end < marks.length && marks[end][mode] <= view.to) ++end;
  const crowded = end - begin > (width - kGutter) / 7;
  let drawn = -9;
  for (let k = begin; k < end; ++k) {
    const e = marks[k];
    if (!e.shown || e.loud) continue;
    const x = xOf(e);
    if (x - drawn < 1) continue;
    drawn = x;
    drawMark(e, x, y, crowded);
    if (!crowded) labelMark(e, x, y, nextX(marks, k + 1, end));
  }
  for (let k = begin; k < end; ++k) {
    const e = marks[k];
    if (!e.shown || !e.loud) continue;
    drawMark(e, xOf(e), y, false);
    labelMark(e, xOf(e), y, nextX(marks, k + 1, end));
  }
}
function nextX(marks, k, end) {
  while (k < end && !marks[k].shown) ++k;
  return k < end ? xOf(marks[k]) : width + 300;
}
function labelMark(e, x, y, next) {
  if (next - x < 30) return;
  ctx.globalAlpha = faded(e) ? .25 : 1;
  print(title(e), x + 7, y + 12, next - x - 14, e.loud ? shade[e.color] : shade.ink);
  ctx.globalAlpha = 1;
}
function drawMark(e, x, y, crowded) {
  ctx.globalAlpha = faded(e) ? .2 : 1;
  ctx.fillStyle = shade[e.color];
  if (crowded) {
    ctx.fillRect(x - .5, y + 3, 1.2, kMarks - 6);
  } else if (e.kind === 'crash' || e.name === 'failed') {
    ctx.beginPath();
    ctx.moveTo(x - 5, y + 3); ctx.lineTo(x + 5, y + 3); ctx.lineTo(x, y + 13);
    ctx.fill();
  } else {
    ctx.beginPath();
    ctx.arc(x, y + 8, e.loud ? 4 : 3, 0, 7);
    ctx.fill();
  }
  if (e === pinned) {
    ctx.strokeStyle = shade.pin;
    ctx.lineWidth = 1.5;
    ctx.strokeRect(x - 6, y + 1.5, 12, 13);
  }
  ctx.globalAlpha = 1;
}
function drawLane(one) {
  const y = top0() + one.y - view.y;
  if (y > height || y + one.h < top0()) return;
  ctx.fillStyle = shade.line;
  ctx.fillRect(0, y - 1, width, 1);
  if (one.end) {
    const x = Math.max(kGutter, xOf(one.end));
    if (x < width) {
      ctx.fillStyle = shade.dead;
      ctx.fillRect(x, y, width - x, one.h - 1);
    }
  }
  drawLines(y, one.h);
  drawSpans(one, y + one.markRow + 2);
  if (one.markRow) drawMarks(one, y + 1);
}
// What concerns all lanes: moves of the clock, failed checks, the pin.
function drawLines(y, h) {
  // Many moves of the clock would only gray the picture.
  const quiet = everywhere.length * Math.min(1, (view.to - view.from) / total[mode]) > 60;
  for (const e of everywhere) {
    const x = Math.round(xOf(e));
    if (x < kGutter || x > width || !e.shown || (quiet && e.name === 'advance')) continue;
    ctx.fillStyle = e.name === 'advance' ? shade.clock : shade.mark;
    // What a failure follows from, such as the cut before a dispatch, is dashed.
    if (e.name === 'advance' || telling.has(e)) ctx.fillRect(x, y, 1, h);
    else for (let at = 0; at < h; at += 6) ctx.fillRect(x, y + at, 1, 3);
  }
  if (pinned?.shown) {
    ctx.fillStyle = shade.soft;
    const x = Math.round(xOf(pinned));
    if (x >= kGutter) ctx.fillRect(x, y, 1, h);
  }
}
const telling = new Set(failed.map((c) => c.events[0]));
const everywhere = [...new Set([...events.filter((e) => e.name === 'advance' && e.kind === 'drill'),
                                ...failed.flatMap((c) => c.events)])];

function drawNames() {
  ctx.fillStyle = shade.paper;
  ctx.fillRect(0, top0(), kGutter - 3, height);
  ctx.fillStyle = shade.line;
  ctx.fillRect(kGutter - 3, top0(), 1, height);
  for (const one of lanes) {
    const y = top0() + one.y - view.y;
    if (y > height || y + one.h < top0()) continue;
    ctx.fillStyle = shade.line;
    ctx.fillRect(0, y - 1, kGutter - 3, 1);
    const inset = one.kind === 'thread' ? 20 : 8;
    ctx.font = one.kind === 'drill' ? `bold ${kFont}` : kFont;
    print(one.label, inset, y + 13, kGutter - inset - 10, shade.ink);
    if (one.headed) drawHead(one);
  }
  ctx.font = kFont;
}
function drawHead(one) {
  const p = data.processes[one.process] ?? {name: `process ${one.process}`, pid: 0};
  const y = top0() + one.head - view.y;
  ctx.fillStyle = shade.raised;
  ctx.fillRect(0, y, width, kHead - 1);
  ctx.font = `bold ${kFont}`;
  ctx.fillStyle = shade.ink;
  ctx.fillText(fitting(p.name, kGutter - 70), 8, y + 14);
  ctx.font = kFont;
  print(`${p.pid || ''}${p.forked ? ' forked' : ''}`, 14 + (p.name.length + 1) * letter, y + 14,
        kGutter - 24 - p.name.length * letter, shade.soft);
  if (!p.ended) return;
  const x = xOf(p.ended), how = p.ended.text.slice(p.name.length + 2);
  const ink = how === 'exit code 0' ? shade.soft : shade.fail;
  const room = how.length * letter + 16;
  if (x < kGutter || x > width) return;
  ctx.fillStyle = ink;
  ctx.fillRect(x - 1, y + 2, 3, kHead - 5);
  print(`\u2020 ${how}`, x + room < width ? x + 6 : x - room - 4, y + 14, room + 10, ink);
}
