// All steps at a glance, from top to bottom: their cost as a bar, their kind as its colour.

const strip = byId('strip');

function tone(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function drawStrip() {
  const box = strip.getBoundingClientRect();
  const scale = window.devicePixelRatio || 1;
  strip.width = Math.max(1, box.width * scale);
  strip.height = Math.max(1, box.height * scale);
  const brush = strip.getContext('2d', { willReadFrequently: true }); // for the picture behind the frame
  brush.scale(scale, scale);
  const tones = {};
  for (const node of nodes) {
    if (!node.step) continue;
    const kind = kindOf(node);
    tones[kind] = tones[kind] || tone(`--${kind}`);
    const y = (node.y / place.bottom) * box.height;
    const high = Math.max(1, (node.height / place.bottom) * box.height - 0.5);
    brush.globalAlpha = (matches && !matches.has(node.id)) || (marked && !marked.has(node.id)) ? 0.12 : 1;
    brush.fillStyle = tones[kind];
    brush.fillRect(6, y, Math.max(2, (box.width - 12) * Math.sqrt(node.part)), high);
  }
  strip.picture = brush.getImageData(0, 0, strip.width, strip.height);
  drawWindow();
}

// What the graph shows of it, as a frame.
function drawWindow() {
  if (!strip.picture) return;
  const brush = strip.getContext('2d');
  brush.putImageData(strip.picture, 0, 0);
  const [wide, high] = [strip.getBoundingClientRect().width, strip.getBoundingClientRect().height];
  const top = (-camera.y / camera.k / place.bottom) * high;
  const part = (canvas.getBoundingClientRect().height / camera.k / place.bottom) * high;
  brush.globalAlpha = 1;
  brush.strokeStyle = tone('--focus');
  brush.lineWidth = 1.5;
  brush.strokeRect(1, Math.max(1, top), wide - 2, Math.min(Math.max(4, part), high - Math.max(1, top) - 1));
}

function goTo(event) {
  const box = strip.getBoundingClientRect();
  const y = ((event.clientY - box.top) / box.height) * place.bottom;
  camera.y = canvas.getBoundingClientRect().height / 2 - y * camera.k;
  if (camera.k >= OVERVIEW) {
    const near = place.ranks[rankAt(y)][0];
    if (near) camera.x = canvas.getBoundingClientRect().width / 2 - near.x * camera.k;
  }
  render();
}

strip.addEventListener('pointerdown', (event) => {
  strip.setPointerCapture(event.pointerId);
  goTo(event);
});
strip.addEventListener('pointermove', (event) => {
  if (event.buttons) goTo(event);
});
