// Elements and text. Whatever comes from a run becomes a text node or an attribute's value, never markup.

const SVG = 'http://www.w3.org/2000/svg';

function fill(node, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name in node && typeof value === 'boolean') node[name] = value;
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : say(child));
  }
  return node;
}

function el(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function svg(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function byId(id) {
  return document.getElementById(id);
}

function clear(node) {
  node.replaceChildren();
  return node;
}

// Characters that hide, reorder or break text: shown by their number instead of being obeyed. Joiners stay: emoji need them.
const HIDDEN = /\p{Cs}|(?![\n\t])\p{Cc}|[\u00ad\u061c\u115f\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

function code(mark) {
  return 'U+' + mark.codePointAt(0).toString(16).toUpperCase().padStart(4, '0');
}

function say(value) {
  const text = String(value);
  const out = document.createDocumentFragment();
  let from = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > from) out.append(text.slice(from, match.index));
    const mark = document.createElement('span');
    mark.className = 'hidden-mark';
    mark.textContent = code(match[0]);
    out.append(mark);
    from = match.index + match[0].length;
  }
  if (from < text.length || from === 0) out.append(text.slice(from));
  return out;
}

// The same as plain text, where no elements can be: attributes, options.
function plain(value) {
  return String(value).replace(HIDDEN, (mark) => `[${code(mark)}]`);
}

function figure(value, digits = 4) {
  return value === null || value === undefined ? '–' : digitsOf(value, digits).replace('-', '\u2212');
}

function digitsOf(value, digits) {
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value)) return Math.abs(value) < 1e6 ? String(value) : value.toLocaleString('en');
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e6)) return value.toExponential(2);
  return String(Number(value.toPrecision(digits)));
}

function signed(value) {
  return typeof value === 'number' && value > 0 ? '+' + figure(value) : figure(value);
}

function count(number, one, many) {
  return `${number.toLocaleString('en')} ${number === 1 ? one : many || one + 's'}`;
}

function field(label, control) {
  return el('label', { class: 'field' }, el('span', {}, label), control);
}

function choice(options, onchange, properties) {
  return el('select', { ...properties, onchange },
    options.map(([value, text]) => el('option', { value }, document.createTextNode(plain(text)))));
}

const tip = {
  show(node, content) {
    const box = byId('tip');
    clear(box).append(content);
    box.hidden = false;
    const at = node.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const left = Math.max(8, Math.min(at.left, window.innerWidth - size.width - 8));
    const below = at.bottom + 6 + size.height < window.innerHeight;
    box.style.left = `${left}px`;
    box.style.top = `${below ? at.bottom + 6 : Math.max(4, at.top - size.height - 6)}px`;
  },
  hide() {
    byId('tip').hidden = true;
  },
};
