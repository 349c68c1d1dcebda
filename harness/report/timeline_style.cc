#include "harness/report/timeline_page.h"

namespace kv::drill {

// Each color is named by what it marks; the script reads the same names for the canvas.
const char* const kTimelineStyle = R"css(
:root { color-scheme: light; --ink: #1b1f24; --soft: #5b6570; --line: #d9dee3; --paper: #fff;
  --raised: #f4f6f8; --pass: #1a7f37; --fail: #cf222e; --warn: #9a6700; --void: #9a6700;
  --step: #b9d4f1; --call: #cfe6cf; --section: #e2d8f3; --hold: #f6c177; --drill: #dde3e9;
  --client: #c9e4e4; --barink: #1b1f24; --point: #2563a8; --note: #7a4fb5; --quiet: #8b96a1;
  --clock: #0b7a75; --dead: #eceff2; --mark: #cf222e; --pin: #1b1f24; --density: #9db4cb; }
:root[data-theme=dark] { color-scheme: dark; --ink: #e6e9ec; --soft: #9aa4ae; --line: #333a41;
  --paper: #14181c; --raised: #1d2227; --pass: #4ac26b; --fail: #ff7b72; --warn: #d4a72c;
  --void: #d4a72c; --step: #2b4f78; --call: #2c5836; --section: #4b3c70; --hold: #8a5a14;
  --drill: #323a43; --client: #1f5557; --barink: #eef1f4; --point: #79b8ff; --note: #c3a6f5;
  --quiet: #75808b; --clock: #4fc4bd; --dead: #0d1013; --mark: #ff7b72; --pin: #fff;
  --density: #48617b; }
* { box-sizing: border-box; }
html, body { height: 100%; margin: 0; }
body { display: flex; flex-direction: column; font: 14px/1.4 system-ui, sans-serif;
  color: var(--ink); background: var(--paper); }
header { padding: .6rem 1rem .3rem; }
h1 { font-size: 1.15rem; margin: 0; display: inline; }
.badge { font-weight: 600; margin-right: .5rem; text-transform: uppercase; font-size: .85rem; }
.pass { color: var(--pass); } .fail, .error { color: var(--fail); } .void { color: var(--void); }
code, #checks, #details, #tip { font-family: ui-monospace, "DejaVu Sans Mono", monospace;
  font-size: 12px; }
#repeat { color: var(--soft); overflow-wrap: anywhere; }
#checks { margin: .3rem 0 0; padding: 0; list-style: none; max-height: 9.5rem; overflow: auto; }
#checks li { padding: .1rem 0; overflow-wrap: anywhere; }
#checks a { color: inherit; text-decoration: underline dotted; text-underline-offset: 3px; }
#checks a:hover, #checks a:focus-visible { text-decoration-style: solid; }
#checks b { color: var(--fail); } #passed { color: var(--soft); }
#tools { display: flex; flex-wrap: wrap; gap: .35rem .5rem; align-items: center;
  padding: .3rem 1rem; border-block: 1px solid var(--line); background: var(--raised); }
#tools input[type=search] { width: 19rem; max-width: 100%; }
button, input { font: inherit; color: inherit; background: var(--paper);
  border: 1px solid var(--line); border-radius: 4px; padding: .1rem .5rem; }
button { cursor: pointer; min-width: 2rem; } button[aria-pressed=true] { border-color: var(--ink);
  box-shadow: inset 0 0 0 1px var(--ink); }
:focus-visible { outline: 2px solid var(--point); outline-offset: 1px; }
#found, #state { color: var(--soft); font-variant-numeric: tabular-nums; }
#state { margin-left: auto; }
#view { flex: 1 1 0; min-height: 12rem; position: relative; overflow: hidden; }
canvas { position: absolute; inset: 0; touch-action: none; cursor: grab; }
canvas.drag { cursor: grabbing; } canvas:focus-visible { outline-offset: -2px; }
#tip { position: fixed; z-index: 2; max-width: 46rem; pointer-events: none; white-space: pre-wrap;
  overflow-wrap: anywhere; background: var(--raised); border: 1px solid var(--soft);
  border-radius: 4px; padding: .35rem .5rem; box-shadow: 0 2px 8px #0004; }
#details { border-top: 1px solid var(--line); background: var(--raised); padding: .4rem 1rem;
  min-height: 5.6rem; max-height: 9.5rem; overflow: auto; white-space: pre-wrap;
  overflow-wrap: anywhere; }
#legend { display: flex; flex-wrap: wrap; gap: .1rem .9rem; color: var(--soft); font-size: 12px;
  padding: .2rem 1rem .35rem; background: var(--raised); }
#legend i { display: inline-block; width: 1rem; height: .65rem; margin-right: .3rem;
  border-radius: 2px; } #legend i.dot { width: .6rem; border-radius: 50%; }
dialog { color: inherit; background: var(--paper); border: 1px solid var(--soft);
  border-radius: 6px; max-width: 40rem; } dialog dt { font-weight: 600; }
dialog dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 0; }
dialog dd { margin: 0; }
)css";

const char* const kTimelineBody = R"html(
<header><span class="badge" id="verdict"></span><h1 id="drill"></h1>
<div id="repeat"></div><ul id="checks" aria-label="failed checks"></ul></header>
<div id="tools" role="toolbar" aria-label="view">
<input type="search" id="search" placeholder="filter: worker vmm.map -driver" aria-label="filter">
<label><input type="checkbox" id="only"> only these</label>
<span id="found" aria-live="polite"></span>
<button id="out" title="zoom out (-)">&minus;</button><button id="in" title="zoom in (+)">+</button>
<button id="fit" title="everything (0)">all</button>
<button id="equal" aria-pressed="false" title="each event the same room, however long it took (e)"
>equal spacing</button>
<button id="theme" title="light or dark (t)">theme</button>
<button id="keys" title="keys (?)">?</button><span id="state"></span></div>
<noscript><p>The picture needs scripts;
trace.txt beside this page has the same events.</p></noscript>
<div id="view"><canvas id="canvas" tabindex="0" role="application"
 aria-label="lanes of events; arrows move, plus and minus zoom, [ and ] go from event to event"
></canvas></div>
<div id="details" aria-live="polite">Point at something for its fields; click to pin it.</div>
<div id="legend">
<span><i style="background:var(--step)"></i>fault or step, to its end</span>
<span><i style="background:var(--call)"></i>call</span>
<span><i style="background:var(--section)"></i>begin to end</span>
<span><i style="background:var(--hold)"></i>held</span>
<span><i style="background:var(--client)"></i>raw client</span>
<span><i class="dot" style="background:var(--point)"></i>point</span>
<span><i class="dot" style="background:var(--note)"></i>note</span>
<span><i class="dot" style="background:var(--clock)"></i>clock</span>
<span><i class="dot" style="background:var(--warn)"></i>warning, order</span>
<span><i class="dot" style="background:var(--fail)"></i>error, crash, failed check</span></div>
<div id="tip" hidden></div>
<dialog id="help"><dl>
<dt>wheel, + &minus; 0</dt><dd>zoom in, out, everything</dd>
<dt>drag, arrows</dt><dd>move; shift and wheel move sideways, alt and wheel up and down</dd>
<dt>[ ]</dt><dd>the event before, after, on the same lane</dd>
<dt>&lt; &gt;</dt><dd>the event before, after, on any lane</dd>
<dt>click, Escape</dt><dd>pin an event, let it go; its place is in the address of the page</dd>
<dt>double click</dt><dd>zoom to what it is on</dd>
<dt>/ n N</dt><dd>filter; next, previous event that matches. Words all have to match, -word must
not</dd>
<dt>e t</dt><dd>equal spacing; light or dark</dd></dl>
<p><button autofocus onclick="this.closest('dialog').close()">close</button></p></dialog>
)html";

}  // namespace kv::drill
