'use strict';
function nice(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= least);
}
function clock(ns, step) {
  if (step >= 1e8) return `${(ns / 1e9).toFixed(step >= 1e9 ? 0 : 1)} s`;
  if (view.to < 2e6 && mode === 'time') return `${(ns / 1e3).toFixed(step >= 1e3 ? 0 : 2)} \u00b5s`;
  const digits = Math.max(0, Math.min(6, Math.ceil(6 - Math.log10(step))));
  return `${(ns / 1e6).toFixed(digits)} ms`;
}
let shownEvents = events;
function drawAxis() {
  const y = kOverview, perPixel = (view.to - view.from) / (width - kGutter);
  ctx.fillStyle = shade.paper;
  ctx.fillRect(0, 0, width, top0());
  ctx.fillStyle = shade.line;
  ctx.fillRect(0, top0() - 1, width, 1);
  print(mode === 'equal' ? 'time, spaced by event' : 'time', 8, y + 13, kGutter - 16, shade.soft);
  let step = nice(105 * perPixel);
  if (mode === 'equal') step = Math.max(1, step);
  for (let v = Math.ceil(view.from / step) * step; v <= view.to; v += step) {
    const x = kGutter + (v - view.from) / perPixel;
    const e = mode === 'equal' ? shownEvents[v] : null;
    if (mode === 'equal' && !e) continue;
    ctx.fillStyle = shade.line;
    ctx.fillRect(x, y, 1, kAxis);
    print(e ? clock(e.t, 1e3) : clock(v, step), x + 4, y + 13, 110, shade.soft);
  }
}
// The whole record in a strip, drawn once until the strip changes, and what part of it is shown.
let strip = null;
function drawOverview() {
  const room = width - kGutter, [low, high] = bounds(), h = kOverview - 4;
  const x = (v) => (v - low) / (high - low) * room, theme = shade.paper;
  if (strip?.mode !== mode || strip.room !== room || strip.shown !== shownEvents ||
      strip.theme !== theme) {
    strip = {mode, room, shown: shownEvents, theme, picture: document.createElement('canvas')};
    strip.picture.width = room;
    strip.picture.height = h;
    const brush = strip.picture.getContext('2d', {alpha: false});
    brush.fillStyle = shade.raised;
    brush.fillRect(0, 0, room, h);
    brush.fillStyle = shade.density;
    if (mode === 'equal') stripOfLanes(brush, x, h); else stripOfDensity(brush, x, room, h);
    brush.fillStyle = shade.mark;
    for (const c of failed) {
      for (const e of c.events.slice(0, 1)) if (e.shown) brush.fillRect(x(e[mode]) - 1, 0, 2, h);
    }
  }
  ctx.drawImage(strip.picture, kGutter, 2);
  ctx.strokeStyle = shade.ink;
  ctx.lineWidth = 1;
  const left = kGutter + x(view.from), right = kGutter + x(view.to);
  ctx.strokeRect(left + .5, 2.5, Math.max(3, right - left - 1), h - 1);
  print(`${shownEvents.length} events`, 8, 14, kGutter - 16, shade.soft);
}
function stripOfDensity(brush, x, room, h) {
  const bins = new Uint32Array(room);
  for (const e of shownEvents) ++bins[Math.max(0, Math.min(room - 1, Math.floor(x(e.time))))];
  const most = Math.log1p(bins.reduce((a, b) => Math.max(a, b), 1));
  bins.forEach((n, i) => {
    const part = Math.max(2, Math.log1p(n) / most * h);
    if (n) brush.fillRect(i, h - part, 1, part);
  });
}
// With equal spacing the density says nothing: then, which lane was active.
function stripOfLanes(brush, x, h) {
  const row = h / lanes.length, wide = Math.max(1.2, (width - kGutter) / total.equal);
  lanes.forEach((one, k) => {
    let drawn = -9;
    for (const e of one.events) {
      const at = x(e.equal);
      if (!e.shown || at - drawn < 1) continue;
      drawn = at;
      brush.fillRect(at - wide / 2, k * row, wide, Math.max(1, row - .5));
    }
  });
}
// The failed checks' names, each at the moment where it became visible.
let flags = [];
function drawFlags() {
  const y = kOverview + kAxis, all = [];
  for (const c of failed) {
    const e = c.events[0], x = e?.shown ? xOf(e) : -1;
    if (x >= kGutter && x <= width) all.push({x, e, text: c.name});
  }
  all.sort((a, b) => a.x - b.x);
  flags = [];
  let free = kGutter;
  for (let i = 0; i < all.length; ++i) {
    const flag = all[i], wide = () => flag.text.length * letter + 8;
    while (all[i + 1] && all[i + 1].x - flag.x < wide()) flag.text += `, ${all[++i].text}`;
    // At the right edge a flag hangs to the left, as far as there is room.
    flag.left = flag.x + wide() > width ? Math.max(free, flag.x - wide()) : flag.x;
    flag.right = flag.left < flag.x ? Math.max(flag.x, Math.min(width, flag.left + wide()))
                                    : flag.x + wide();
    free = flag.right + 2;
    ctx.fillStyle = shade.mark;
    ctx.fillRect(flag.left, y + 1, flag.right - flag.left, kFlags - 2);
    print(flag.text, flag.left + 4, y + 11, flag.right - flag.left - 6, shade.paper);
    flags.push(flag);
  }
}
function sayState() {
  const a = firstFrom(events, view.from), z = firstFrom(events, view.to) - 1;
  byId('state').textContent = a > z ? 'no event here'
    : `events ${events[a].seq} to ${events[z].seq}, ${duration(events[z].t - events[a].t)}`;
}
function draw() {
  const began = performance.now();
  ctx.fillStyle = shade.paper;
  ctx.fillRect(0, 0, width, height);
  for (const one of lanes) drawLane(one);
  drawNames();
  drawAxis();
  drawOverview();
  drawFlags();
  sayState();
  lastMs = performance.now() - began;
}
let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => { asked = false; draw(); });
}
