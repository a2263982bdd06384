// Making elements. Names come from a stranger's model: they become text, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function byId(id) {
  return document.getElementById(id);
}

// make('p', 'dim', 'text' or elements ...)
function make(tag, name, ...inside) {
  const element = document.createElement(tag);
  if (name) element.className = name;
  element.append(...inside.filter((part) => part !== null && part !== undefined));
  return element;
}

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

function button(text, act, name) {
  const element = make('button', name || '', text);
  element.type = 'button';
  element.addEventListener('click', act);
  return element;
}

// The middle is left out: names differ most at their ends.
function cut(text, room) {
  if (text.length <= room) return text;
  const head = Math.floor((room - 1) / 3);
  return `${text.slice(0, head)}…${text.slice(text.length - (room - 1 - head))}`;
}

// Of types and lists the beginning says most.
function cutEnd(text, room) {
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}

// 5,000: a browser's own way loads a tenth of a second of tables of all languages first.
function thousands(count) {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

function milliseconds(value) {
  if (value === 0) return '0';
  if (value < 0.001) return `${(value * 1000).toPrecision(2)} µs`;
  return `${value < 10 ? value.toPrecision(2) : value.toFixed(0)} ms`;
}

function large(count) {
  for (const [limit, unit] of [[1e9, ' G'], [1e6, ' M'], [1e3, ' k']]) {
    if (count >= limit) return `${(count / limit).toPrecision(3)}${unit}`;
  }
  return String(count);
}

function bytes(count) {
  for (const [limit, unit] of [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB']]) {
    if (count >= limit) return `${(count / limit).toFixed(1)} ${unit}`;
  }
  return `${count} bytes`;
}

function share(part, whole) {
  const percent = whole ? (100 * part) / whole : 0;
  if (part && percent < 1) return 'under 1 %';
  if (part < whole && percent > 99) return 'over 99 %';
  return `${percent.toFixed(0)} %`;
}
