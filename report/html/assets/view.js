// Where things stand on the drawing: sizes of nodes, heights of ranks, ways of edges.

const WIDE = 236;
const COLUMN = WIDE + 34; // one unit of the layout
const GAP = 34;
const LINE = 17;
const SMALL = 30;
const open = new Set(); // ids of unfolded nodes

const place = { ranks: [], top: [], height: [], through: [], left: 0, right: 0, bottom: 0 };

function measure() {
  const { all, most } = costs();
  for (const node of nodes) {
    const part = node.step ? all[node.index] / most : 0;
    node.part = part;
    node.base = node.step ? 60 + Math.round(52 * Math.sqrt(part)) : SMALL;
    node.height = node.base + (open.has(node.id) ? 10 + LINE * inside(node).length : 0);
    node.x = node.column * COLUMN;
  }
  const count = 1 + Math.max(0, ...nodes.map((node) => node.rank));
  place.ranks = Array.from({ length: count }, () => []);
  place.height = new Array(count).fill(8);
  for (const node of nodes) {
    place.ranks[node.rank].push(node);
    place.height[node.rank] = Math.max(place.height[node.rank], node.height);
  }
  place.top = new Array(count + 1).fill(0);
  for (let rank = 0; rank < count; rank += 1) {
    // ranks that only edges pass take little room
    const gap = place.ranks[rank].length ? GAP : 4;
    place.top[rank + 1] = place.top[rank] + place.height[rank] + gap;
  }
  place.bottom = place.top[count];
  for (const rank of place.ranks) rank.sort((a, b) => a.x - b.x);
  for (const node of nodes) {
    node.y = place.top[node.rank] + (place.height[node.rank] - node.height) / 2;
  }
  place.left = Math.min(...nodes.map((node) => node.x)) - WIDE / 2;
  place.right = Math.max(...nodes.map((node) => node.x)) + WIDE / 2;
}

// The model's nodes in a step, as lines: what is fused first, as it is applied.
function inside(node) {
  const step = node.step;
  if (!step) return [];
  const names = detailsOf(node).origin.map((name) => ({ text: text(name), quantizer: quantizers().has(name) }));
  const fused = step.fused.map((name) => ({ text: text(name), fused: true }));
  return [...names, ...fused];
}

// Which edges a rank shows: near ones by the ranks that they pass.
function edgesByRank() {
  place.through = place.ranks.map(() => []);
  for (const edge of edges) {
    if (edge.far) continue;
    for (let rank = edge.source.rank; rank <= edge.target.rank; rank += 1) place.through[rank].push(edge);
  }
}

// Each node has its edges beside each other, in the order of where they lead.
function ports() {
  for (const node of nodes) {
    spread(node.into.filter((edge) => !edge.far), (edge) => (edge.bends.length ? edge.bends[edge.bends.length - 1][0] : edge.source.column), 'inAt');
    spread(node.outof.filter((edge) => !edge.far), (edge) => (edge.bends.length ? edge.bends[0][0] : edge.target.column), 'outAt');
  }
}

function spread(list, key, field) {
  const ordered = [...list].sort((a, b) => key(a) - key(b));
  const apart = Math.min(18, (WIDE - 60) / Math.max(1, ordered.length));
  ordered.forEach((edge, number) => {
    edge[field] = (number - (ordered.length - 1) / 2) * apart;
  });
}

function way(edge) {
  const { source, target } = edge;
  if (edge.far) return farWay(edge);
  let x = source.x + (edge.outAt || 0);
  let y = source.y + source.height;
  let path = `M${x.toFixed(1)} ${y.toFixed(1)}`;
  const goTo = (nextX, nextY) => {
    const bend = Math.max(12, (nextY - y) / 2);
    path += `C${x.toFixed(1)} ${(y + bend).toFixed(1)} ${nextX.toFixed(1)} ${(nextY - bend).toFixed(1)} ${nextX.toFixed(1)} ${nextY.toFixed(1)}`;
    [x, y] = [nextX, nextY];
  };
  for (const [column, rank] of edge.bends) {
    goTo(column * COLUMN, place.top[rank]);
    y = place.top[rank] + place.height[rank];
    path += `V${y.toFixed(1)}`;
  }
  goTo(target.x + (edge.inAt || 0), target.y);
  return path;
}

// Over the others, in a bow to the right.
function farWay({ source, target }) {
  const [x, y] = [source.x + WIDE / 2, source.y + source.height / 2];
  const [toX, toY] = [target.x + WIDE / 2, target.y + target.height / 2];
  const out = Math.max(x, toX) + Math.min(60 + Math.abs(toY - y) / 12, 420);
  return `M${x} ${y}C${out} ${y} ${out} ${toY} ${toX} ${toY}`;
}

function rankAt(y) {
  let [low, high] = [0, place.ranks.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (place.top[middle] <= y) low = middle;
    else high = middle - 1;
  }
  return low;
}

function nodeAt(x, y) {
  const rank = rankAt(y);
  return place.ranks[rank].find((node) => Math.abs(node.x - x) <= WIDE / 2 && y >= node.y && y <= node.y + node.height) || null;
}
