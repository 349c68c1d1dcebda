'use strict';
// --- the address of what is seen: #select=SEQ&from=SEQ&to=SEQ&mode=..&q=..&only=1&theme=..
let remembering = 0, themed = false;
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(() => {
    const say = new URLSearchParams(), [low, high] = bounds();
    if (pinned) say.set('select', pinned.seq);
    if (view.from > low || view.to < high) {
      const first = events[firstFrom(events, view.from)];
      const last = events[firstFrom(events, view.to) - 1];
      if (first) say.set('from', first.seq);
      if (last) say.set('to', last.seq);
    }
    say.set('mode', mode);
    if (byId('search').value) say.set('q', byId('search').value);
    if (byId('only').checked) say.set('only', '1');
    if (themed) say.set('theme', document.documentElement.dataset.theme);
    history.replaceState(null, '', `#${say}`);
  }, 200);
}
function followAddress() {
  const say = new URLSearchParams(location.hash.slice(1));
  const event = (word) => events[indexOf.get(Number(say.get(word) ?? NaN))];
  if (say.has('theme')) { themed = true; setTheme(say.get('theme') === 'dark' ? 'dark' : 'light'); }
  if (say.has('mode')) setMode(say.get('mode') === 'time' ? 'time' : 'equal');
  if (say.has('q') || say.has('only')) {
    byId('search').value = say.get('q') ?? '';
    byId('only').checked = say.get('only') === '1';
    filter();
  }
  const first = event('from'), last = event('to');
  if (first || last) {
    const margin = mode === 'equal' ? .5 : 0;
    view.from = first ? first[mode] - margin : bounds()[0];
    view.to = last ? last[mode] + margin : bounds()[1];
    clampView();
    redraw();
  }
  if (event('select')) {
    if (!first && !last) return show(event('select'));
    reveal(event('select').lane);
    pin(event('select'));
  }
}

// --- the head of the page
function head() {
  document.title = `${data.drill}: ${data.verdict}`;
  byId('drill').textContent = data.drill;
  byId('verdict').textContent = data.verdict;
  byId('verdict').classList.add(data.verdict);
  const code = byId('repeat').appendChild(document.createElement('code'));
  code.textContent = data.repeat;
  for (const c of failed) {
    const item = byId('checks').appendChild(document.createElement('li'));
    const at = item.appendChild(document.createElement(c.events.length ? 'a' : 'span'));
    if (c.events.length) at.href = `#select=${c.events[0].seq}`;
    at.addEventListener('click', (press) => { press.preventDefault(); show(c.events[0]); });
    at.appendChild(document.createElement('b')).textContent = c.name;
    at.append(` ${c.why}`);
    if (c.where) item.append(`  (${c.where})`);
  }
  for (const c of unjudged) {
    const item = byId('checks').appendChild(document.createElement('li'));
    item.className = 'void';
    item.textContent = `${c.name} not judged: ${c.why}`;
  }
  const passed = data.checks.length - failed.length - unjudged.length;
  const item = byId('checks').appendChild(document.createElement('li'));
  item.id = 'passed';
  item.textContent = `${passed} of ${data.checks.length} checks passed`;
  item.title = data.checks.filter((c) => c.verdict === 'pass').map((c) => c.name).join(', ');
}

// --- the mouse
function hover(move) {
  const tip = byId('tip'), box = canvas.getBoundingClientRect();
  const found = under(move.clientX - box.left, move.clientY - box.top);
  hovered = found;
  tip.hidden = !found;
  if (!found) return;
  tip.textContent = fields(found.e, found.s);
  const x = move.clientX + 14, y = move.clientY + 16;
  tip.style.left = `${Math.max(4, Math.min(x, innerWidth - tip.offsetWidth - 8))}px`;
  const fits = y + tip.offsetHeight <= innerHeight;
  tip.style.top = `${fits ? y : move.clientY - tip.offsetHeight - 12}px`;
}
let held = null;
canvas.addEventListener('pointerdown', (press) => {
  if (press.button !== 0) return;
  held = {x: press.clientX, y: press.clientY, moved: false};
  canvas.setPointerCapture(press.pointerId);
});
canvas.addEventListener('pointermove', (move) => {
  if (!held) return hover(move);
  const x = move.clientX - held.x, y = move.clientY - held.y;
  if (!held.moved && Math.abs(x) + Math.abs(y) < 4) return;
  Object.assign(held, {x: move.clientX, y: move.clientY, moved: true});
  canvas.classList.add('drag');
  byId('tip').hidden = true;
  pan(-x / (width - kGutter), -y);
});
canvas.addEventListener('pointerup', (up) => {
  const still = held && !held.moved, box = canvas.getBoundingClientRect();
  held = null;
  canvas.classList.remove('drag');
  if (!still) return;
  const x = up.clientX - box.left, y = up.clientY - box.top;
  if (y < kOverview && x > kGutter) {
    const [low, high] = bounds(), room = view.to - view.from;
    view.from = low + (x - kGutter) / (width - kGutter) * (high - low) - room / 2;
    view.to = view.from + room;
    return pan(0, 0);
  }
  const flag = flags.find((f) => y > kOverview + kAxis && y < top0() && x >= f.left && x < f.right);
  if (flag) return pin(flag.e);
  const found = under(x, y);
  pin(found?.e ?? null, found?.s);
});
canvas.addEventListener('pointercancel', () => { held = null; canvas.classList.remove('drag'); });
canvas.addEventListener('pointerleave', () => { byId('tip').hidden = true; });
canvas.addEventListener('dblclick', () => {
  if (!hovered?.s) return zoom(.3, hovered?.e[mode]);
  const to = endOf(hovered.s)[mode], margin = Math.max(1, (to - hovered.s.from[mode]) * .05);
  view.from = hovered.s.from[mode] - margin;
  view.to = to + margin;
  pan(0, 0);
});
canvas.addEventListener('wheel', (turn) => {
  turn.preventDefault();
  const box = canvas.getBoundingClientRect(), by = turn.deltaY * (turn.deltaMode === 1 ? 30 : 1);
  if (turn.altKey) pan(0, by);
  else if (turn.shiftKey || Math.abs(turn.deltaX) > Math.abs(turn.deltaY)) {
    pan((turn.deltaX || by) / width, 0);
  } else {
    zoom(Math.exp(Math.max(-300, Math.min(300, by)) * .002),
         atX(Math.max(kGutter, turn.clientX - box.left)));
  }
  hover(turn);
}, {passive: false});

// --- the keys
const keys = {
  '+': () => zoom(.6), '=': () => zoom(.6), '-': () => zoom(1 / .6), '_': () => zoom(1 / .6),
  '0': fit, ArrowLeft: () => pan(-.15, 0), ArrowRight: () => pan(.15, 0),
  ArrowUp: () => pan(0, -40), ArrowDown: () => pan(0, 40),
  PageUp: () => pan(0, 40 - height), PageDown: () => pan(0, height - 40),
  Home: () => { view.y = 0; pan(-1e6, 0); }, End: () => pan(1e6, 0),
  '[': () => step(-1, pinned ? pinned.lane.events : events),
  ']': () => step(1, pinned ? pinned.lane.events : events),
  '<': () => step(-1, events), '>': () => step(1, events),
  n: () => step(1, matches), N: () => step(-1, matches),
  e: () => setMode(mode === 'equal' ? 'time' : 'equal'), t: () => byId('theme').click(),
  '/': () => byId('search').focus(), '?': () => byId('help').showModal(), Escape: () => pin(null)};
document.addEventListener('keydown', (press) => {
  if (press.ctrlKey || press.metaKey || press.altKey || byId('help').open) return;
  if (press.target.matches('input[type=search]')) {
    if (press.key === 'Enter') step(press.shiftKey ? -1 : 1, matches);
    if (press.key === 'Escape') canvas.focus();
    return;
  }
  const deed = keys[press.key];
  if (!deed) return;
  press.preventDefault();
  deed();
});
byId('in').onclick = keys['+'];
byId('out').onclick = keys['-'];
byId('fit').onclick = fit;
byId('equal').onclick = keys.e;
byId('keys').onclick = keys['?'];
byId('theme').onclick = () => {
  themed = true;
  setTheme(document.documentElement.dataset.theme === 'dark' ? 'light' : 'dark');
  remember();
};
byId('search').addEventListener('input', filter);
byId('only').addEventListener('change', filter);
addEventListener('hashchange', followAddress);
new ResizeObserver(() => { resize(); draw(); }).observe(byId('view'));

// --- begin
const dark = matchMedia('(prefers-color-scheme: dark)');
dark.addEventListener('change', () => { if (!themed) setTheme(dark.matches ? 'dark' : 'light'); });
head();
layout();
setTheme(dark.matches ? 'dark' : 'light');
byId('equal').setAttribute('aria-pressed', mode === 'equal');
resize();
fit();
followAddress();
draw();
