// The drawing: only what can be seen is in the document; far away it is a few large shapes.

const canvas = byId('canvas');
const world = draw('g', { id: 'world' });
const [farLayer, edgeLayer, nodeLayer, overview] = ['far', 'edges', 'nodes', 'overview'].map((id) => draw('g', { id }));
world.append(farLayer, edgeLayer, overview, nodeLayer);
canvas.append(world);

const OVERVIEW = 0.32; // below this scale texts cannot be read
const LEAST = 0.03; // scale at which a box is two pixels high
const FEW_FAR = 300;
const camera = { k: 1, x: 0, y: 0, wide: 0 };
const shown = { nodes: new Map(), edges: new Map(), overview: false };
let colour = 'kind';
let matches = null; // ids, or null without a search
let marked = null; // ids of the steps of a finding
let selected = null;

// `aim` moves the camera when it is known how large all is.
function relayout(aim) {
  measure();
  if (aim) aim();
  ports();
  edgesByRank();
  forget();
  drawFar();
  render();
  drawStrip();
}

function forget() {
  for (const kind of ['nodes', 'edges']) {
    for (const element of shown[kind].values()) element.remove();
    shown[kind].clear();
  }
  overview.replaceChildren();
  shown.overview = false;
}

// -- what can be seen --------------------------------------------------------

function render() {
  settle();
  world.setAttribute('transform', `translate(${camera.x} ${camera.y}) scale(${camera.k})`);
  const small = camera.k < OVERVIEW;
  canvas.classList.toggle('small', small);
  if (small) {
    if (!shown.overview) drawOverview();
    keep(new Set(selected === null ? [] : [nodes[selected]]), new Set());
  } else {
    const box = canvas.getBoundingClientRect();
    const first = rankAt((-camera.y - 200) / camera.k);
    const last = rankAt((box.height - camera.y + 200) / camera.k);
    const [left, right] = [(-camera.x - 300) / camera.k, (box.width - camera.x + 300) / camera.k];
    const wantedNodes = new Set();
    const wantedEdges = new Set();
    for (let rank = first; rank <= last; rank += 1) {
      for (const node of place.ranks[rank]) if (node.x + WIDE > left && node.x - WIDE < right) wantedNodes.add(node);
      for (const edge of place.through[rank]) if (sees(edge, left, right)) wantedEdges.add(edge);
    }
    keep(wantedNodes, wantedEdges);
  }
  drawWindow();
}

function sees(edge, left, right) {
  const columns = [edge.source.x, edge.target.x, ...edge.bends.map((bend) => bend[0] * COLUMN)];
  return Math.max(...columns) + WIDE > left && Math.min(...columns) - WIDE < right;
}

function keep(wantedNodes, wantedEdges) {
  for (const [layer, made, wanted, create] of [[edgeLayer, shown.edges, wantedEdges, drawEdge], [nodeLayer, shown.nodes, wantedNodes, drawNode]]) {
    for (const [thing, element] of made) {
      if (!wanted.has(thing)) {
        element.remove();
        made.delete(thing);
      }
    }
    for (const thing of wanted) {
      if (!made.has(thing)) {
        const element = create(thing);
        made.set(thing, element);
        layer.append(element);
      }
    }
  }
}

// -- nodes and edges ---------------------------------------------------------

function kindOf(node) {
  if (colour === 'error' && node.step) return errorKind(node.step.error);
  return node.category;
}

// Signal to noise in dB: below 10 nothing is left of the values, from 30 on nobody sees a difference.
function errorKind(decibels) {
  if (decibels === undefined) return 'move';
  return decibels < 10 ? 'e0' : decibels < 20 ? 'e1' : decibels < 30 ? 'e2' : 'e3';
}

function classesOf(node) {
  const names = ['node', `k-${kindOf(node)}`];
  if (node.id === selected) names.push('selected');
  if ((matches && !matches.has(node.id)) || (marked && !marked.has(node.id))) names.push('faint');
  if (matches && matches.has(node.id)) names.push('hit');
  return names.join(' ');
}

function drawNode(node) {
  const group = draw('g', { class: classesOf(node), transform: `translate(${node.x - WIDE / 2} ${node.y})`, 'data-node': node.id });
  group.append(draw('rect', { class: 'box', width: WIDE, height: node.height, rx: node.step ? 8 : SMALL / 2 }));
  if (!node.step) {
    group.append(draw('text', { x: WIDE / 2, y: 19.5, class: 'end' }, node.shown));
    return group;
  }
  const { sum } = costs_;
  const cost = size.of(node.step);
  group.append(
    draw('rect', { class: 'band', width: 5, height: node.height, rx: 2.5 }),
    draw('text', { x: 16, y: 20, class: 'what' }, cut(node.what, 24)),
    draw('text', { x: WIDE - 10, y: 20, class: 'number' }, `#${node.index}`),
    draw('text', { x: 16, y: 36, class: 'name' }, node.shown),
    draw('text', { x: 16, y: 51, class: 'types' }, cutEnd(node.types, 27)),
  );
  if (sum && cost / sum >= 0.01) group.append(draw('text', { x: WIDE - 10, y: 51, class: 'percent' }, share(cost, sum)));
  if (node.base > 78) {
    group.append(draw('text', { x: 16, y: 67, class: 'types' }, cutEnd(node.step.fused.map(text).join(' · '), 33)));
  }
  group.append(draw('rect', { class: 'bar', x: 16, y: node.base - 5, width: Math.max(1.5, (WIDE - 26) * node.part), height: 2.5, rx: 1 }));
  if (open.has(node.id)) {
    const lines = draw('g', { class: 'inside', transform: `translate(16 ${node.base + 14})` });
    inside(node).forEach((line, number) => {
      const name = line.fused ? 'fused' : line.quantizer ? 'quantizer' : 'onnx';
      const sign = line.fused ? '+ ' : line.quantizer ? 'Q ' : '• ';
      lines.append(draw('text', { y: number * LINE, class: name }, cut(sign + line.text, 33)));
    });
    group.append(draw('path', { class: 'rule', d: `M16 ${node.base}H${WIDE - 10}` }), lines);
  }
  return group;
}

function drawEdge(edge) {
  const touched = selected !== null && (edge.source.id === selected || edge.target.id === selected);
  const path = draw('path', { class: `edge v-${edge.kind}${touched ? ' touched' : ''}${edge.far ? ' far' : ''}`, d: way(edge) });
  path.append(draw('title', {}, `${edge.value}\n${edge.type}, ${edge.size}`));
  return path;
}

function drawFar() {
  const far = edges.filter((edge) => edge.far);
  const few = far.length <= FEW_FAR ? far : far.filter((edge) => edge.source.id === selected || edge.target.id === selected);
  farLayer.replaceChildren(...few.map(drawEdge));
}

// One shape a kind.
function drawOverview() {
  const boxes = {};
  for (const node of nodes) {
    const name = classesOf(node).replace('selected', '');
    (boxes[name] = boxes[name] || []).push(`M${node.x - WIDE / 2} ${node.y.toFixed(0)}h${WIDE}v${node.height}h${-WIDE}z`);
  }
  const lines = {};
  for (const edge of edges) if (!edge.far) (lines[edge.kind] = lines[edge.kind] || []).push(way(edge));
  overview.replaceChildren(
    ...Object.entries(lines).map(([kind, ways]) => draw('path', { class: `edge v-${kind}`, d: ways.join('') })),
    ...Object.entries(boxes).map(([name, shapes]) => {
      const group = draw('g', { class: name });
      group.append(draw('path', { class: 'block', d: shapes.join('') }));
      return group;
    }),
  );
  shown.overview = true;
}

function recolour() {
  forget();
  drawFar();
  render();
  drawStrip();
}

let costs_ = costs();

function resize() {
  costs_ = costs();
  relayout();
}

// -- the camera --------------------------------------------------------------

function zoomAt(factor, x, y) {
  const box = canvas.getBoundingClientRect();
  const [atX, atY] = [x === undefined ? box.width / 2 : x, y === undefined ? box.height / 2 : y];
  const least = Math.min(0.3, Math.max(LEAST / 2, 0.8 * (box.height / place.bottom)));
  const k = Math.min(2.5, Math.max(least, camera.k * factor));
  camera.x = atX - ((atX - camera.x) * k) / camera.k;
  camera.y = atY - ((atY - camera.y) * k) / camera.k;
  camera.k = k;
  render();
}

// All of it, or, of a model that would become a thread, as much around the middle as can be told apart.
function fit() {
  const box = canvas.getBoundingClientRect();
  const middle = (box.height / 2 - camera.y) / camera.k;
  const all = Math.min(1, box.width / (place.right - place.left + 80), box.height / (place.bottom + 60));
  camera.k = Math.max(all, LEAST);
  camera.x = box.width / 2 - ((place.left + place.right) / 2) * camera.k;
  const room = box.height - place.bottom * camera.k;
  camera.y = room > 0 ? room / 2 : Math.min(20, Math.max(room - 20, box.height / 2 - middle * camera.k));
  render();
}

// The step in the middle of what can be seen.
function middleNode() {
  const box = canvas.getBoundingClientRect();
  const [x, y] = [(box.width / 2 - camera.x) / camera.k, (box.height / 3 - camera.y) / camera.k];
  const rank = place.ranks[rankAt(y)];
  return [...rank].sort((a, b) => Math.abs(a.x - x) - Math.abs(b.x - x))[0] || nodes[0];
}

// The beginning of the model, as large as can be read.
function begin() {
  const box = canvas.getBoundingClientRect();
  camera.k = Math.min(1, Math.max(0.75, box.width / (place.right - place.left + 80)));
  const head = place.ranks.slice(0, 12).flat().map((node) => node.x).sort((a, b) => a - b);
  camera.x = box.width / 2 - head[Math.floor(head.length / 2)] * camera.k;
  camera.y = 24;
}

// What was in the middle stays there when the story opens or the window changes.
function settle() {
  const wide = canvas.getBoundingClientRect().width;
  if (camera.wide && wide !== camera.wide) camera.x += (wide - camera.wide) / 2;
  camera.wide = wide;
}

function show(node) {
  settle();
  const box = canvas.getBoundingClientRect();
  if (camera.k < OVERVIEW) camera.k = 0.9;
  const [left, top] = [camera.x + (node.x - WIDE / 2) * camera.k, camera.y + node.y * camera.k];
  const [right, bottom] = [left + WIDE * camera.k, top + node.height * camera.k];
  if (left < 20 || right > box.width - 20) camera.x = box.width / 2 - node.x * camera.k;
  if (top < 30 || bottom > box.height - 50) camera.y = box.height * 0.4 - (node.y + node.height / 2) * camera.k;
  render();
}

// -- hands -------------------------------------------------------------------

function pointOf(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left - camera.x) / camera.k, (event.clientY - box.top - camera.y) / camera.k];
}

canvas.addEventListener('wheel', (event) => {
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  if (event.ctrlKey || event.metaKey) {
    zoomAt(Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
    return;
  }
  const unit = event.deltaMode === 1 ? 24 : 1;
  camera.x -= (event.shiftKey ? event.deltaY : event.deltaX) * unit;
  camera.y -= (event.shiftKey ? 0 : event.deltaY) * unit;
  render();
}, { passive: false });

let drag = null;
canvas.addEventListener('pointerdown', (event) => {
  drag = { x: event.clientX, y: event.clientY, moved: false };
});
canvas.addEventListener('pointermove', (event) => {
  if (!drag || !event.buttons) return;
  const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
  if (!drag.moved && Math.hypot(dx, dy) < 4) return;
  if (!drag.moved) canvas.setPointerCapture(event.pointerId);
  Object.assign(drag, { x: event.clientX, y: event.clientY, moved: true });
  camera.x += dx;
  camera.y += dy;
  canvas.classList.add('dragging');
  render();
});
canvas.addEventListener('pointerup', (event) => {
  const clicked = drag && !drag.moved;
  drag = null;
  canvas.classList.remove('dragging');
  if (!clicked) return;
  const node = nodeAt(...pointOf(event));
  select(node ? node.id : null, false);
});
canvas.addEventListener('dblclick', (event) => {
  const node = nodeAt(...pointOf(event));
  if (node) unfold(node);
});

function unfold(node) {
  if (!node.step) return;
  const before = node.y;
  if (open.has(node.id)) open.delete(node.id);
  else open.add(node.id);
  measure();
  camera.y -= (node.y - before) * camera.k; // it stays where the eye is
  relayout();
}
