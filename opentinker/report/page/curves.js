// Curves: one picture for each kind of figure, a line for each run and each of its parts.

const DASHES = ['', '6 3', '2 3', '8 3 2 3', '1 2'];
const SMALL = 190;
const LARGE = 400;

const curves = { smoothing: 0, hidden: new Set(), wanted: '', drawn: [] };

function lineColour(place) {
  return `var(--line-${place % 8})`;
}

// Lines of a picture. One run: a colour for each part. Several: a colour for each run, a dash for each part.
function chartLines(chart) {
  const several = data.runs.length > 1;
  const found = [];
  chart.lines.forEach(([who, key], part) => {
    data.runs.forEach((run, number) => {
      const values = run.figures[key];
      if (!values) return;
      const points = [];
      values.forEach((value, place) => value !== null && points.push([run.at[place], value]));
      if (!points.length) return;
      points.sort((one, other) => one[0] - other[0]);
      found.push({
        name: several ? (chart.lines.length > 1 ? `${run.name}: ${who}` : run.name) : who,
        toggle: several ? `run:${number}` : `part:${who}`,
        colour: lineColour(several ? number : part),
        dash: several ? DASHES[part % DASHES.length] : '',
        points,
      });
    });
  });
  return found;
}

// A running mean that forgets; corrected at the start, where it knows little.
function smooth(points, weight) {
  if (!weight) return points;
  let sum = 0;
  let mass = 0;
  return points.map(([step, value]) => {
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + 1 - weight;
    return [step, sum / mass];
  });
}

// No more points than the picture has columns: the lowest and the highest of each column stay.
function thin(points, columns) {
  if (points.length <= 2 * columns) return points;
  const size = points.length / columns;
  const kept = [];
  for (let column = 0; column < columns; column++) {
    const part = points.slice(Math.floor(column * size), Math.floor((column + 1) * size));
    let low = part[0];
    let high = part[0];
    for (const point of part) {
      if (point[1] < low[1]) low = point;
      if (point[1] > high[1]) high = point;
    }
    kept.push(...(low[0] < high[0] ? [low, high] : low === high ? [low] : [high, low]));
  }
  return kept;
}

function ticks(low, high, wanted) {
  const rough = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((part) => part * power).find((size) => size >= rough) || power * 10;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high + step * 1e-9; value += step) {
    found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  }
  return found.length < 50 ? found : [low, high];
}

function bounds(lines, chart) {
  let [x0, x1, y0, y1] = [Infinity, -Infinity, Infinity, -Infinity];
  for (const line of lines) {
    for (const [x, y] of line.points) {
      x0 = Math.min(x0, x);
      x1 = Math.max(x1, x);
      y0 = Math.min(y0, y);
      y1 = Math.max(y1, y);
    }
  }
  if (chart.id === 'eval/exploitability' || (/_rate$/.test(chart.id) && y0 >= 0)) y0 = Math.min(0, y0);
  const room = (y1 - y0 || Math.abs(y1) || 1) * 0.06;
  return { x0, x1: x1 > x0 ? x1 : x0 + 1, y0: y0 === 0 ? 0 : y0 - room, y1: y1 + room };
}

function drawChart(card, chart, large) {
  const holder = card.querySelector('.plot');
  const lines = chartLines(chart).filter((line) => !curves.hidden.has(line.toggle));
  const width = Math.max(220, Math.floor(holder.clientWidth || 400));
  const height = large ? LARGE : SMALL;
  const [left, right, top, bottom] = [52, 10, 8, 24];
  const picture = svg('svg', {
    width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', tabindex: 0,
    'aria-label': plain(`${chart.title} over the steps: ` + (lines.map(
      (line) => `${line.name} ends at ${figure(line.points.at(-1)[1])}`).join(', ') || 'nothing to show')),
  });
  clear(holder).append(picture);
  if (!lines.length) {
    picture.append(svg('text', { x: width / 2, y: height / 2, 'text-anchor': 'middle', class: 'tick' }, 'hidden'));
    return;
  }
  const box = bounds(lines, chart);
  const x = (step) => left + ((step - box.x0) / (box.x1 - box.x0)) * (width - left - right);
  const y = (value) => height - bottom - ((value - box.y0) / (box.y1 - box.y0)) * (height - top - bottom);
  for (const value of ticks(box.y0, box.y1, large ? 7 : 4)) {
    picture.append(
      svg('line', { x1: left, x2: width - right, y1: y(value), y2: y(value), class: value === 0 ? 'grid zero' : 'grid' }),
      svg('text', { x: left - 6, y: y(value) + 4, 'text-anchor': 'end', class: 'tick' }, figure(Number(value.toPrecision(10)), 3)));
  }
  for (const step of ticks(box.x0, box.x1, Math.max(2, Math.floor(width / 110)))) {
    if (!Number.isInteger(step)) continue;
    picture.append(svg('text', { x: x(step), y: height - 6, 'text-anchor': 'middle', class: 'tick' }, String(step)));
  }
  const path = (points) => points.map(([step, value], place) =>
    `${place ? 'L' : 'M'}${x(step).toFixed(1)} ${y(value).toFixed(1)}`).join('');
  for (const line of lines) {
    line.shown = smooth(line.points, curves.smoothing);
    const look = { fill: 'none', 'stroke-dasharray': line.dash || null };
    if (curves.smoothing) {
      const raw = svg('path', { ...look, d: path(thin(line.points, width)), class: 'raw' });
      raw.style.stroke = line.colour;
      picture.append(raw);
    }
    const drawn = svg('path', { ...look, d: path(thin(line.shown, width)), class: 'curve' });
    drawn.style.stroke = line.colour;
    picture.append(drawn);
    if (line.points.length <= 12) { // few points: a line alone would hide where they are
      for (const [step, value] of line.shown) {
        const dot = svg('circle', { cx: x(step), cy: y(value), r: 2.4 });
        dot.style.fill = line.colour;
        picture.append(dot);
      }
    }
  }
  reading(picture, chart, lines, { x, y, box, left, right, top, bottom, width, height });
}

// The values under the pointer, or under a cursor that the arrow keys move.
function reading(picture, chart, lines, place) {
  const steps = [...new Set(lines.flatMap((line) => line.points.map((point) => point[0])))].sort((a, b) => a - b);
  const rule = svg('line', { y1: place.top, y2: place.height - place.bottom, class: 'rule', visibility: 'hidden' });
  picture.append(rule);
  let at = steps.length - 1;
  const show = () => {
    const step = steps[at];
    rule.setAttribute('x1', place.x(step));
    rule.setAttribute('x2', place.x(step));
    rule.setAttribute('visibility', 'visible');
    const rows = lines.map((line) => {
      const point = line.shown.find((candidate) => candidate[0] === step);
      return point && el('tr', {}, el('td', {}, swatch(line)), el('th', { scope: 'row' }, line.name), el('td', {}, figure(point[1])));
    });
    const content = el('div', {}, el('strong', {}, `step ${step}`), el('table', { class: 'readout' }, el('tbody', {}, rows)));
    const from = picture.getBoundingClientRect();
    const left = from.left + place.x(step);
    tip.show({ getBoundingClientRect: () => ({ left: left + 10, top: from.top, bottom: from.top + 20 }) }, content);
  };
  const hide = () => {
    rule.setAttribute('visibility', 'hidden');
    tip.hide();
  };
  picture.addEventListener('pointermove', (event) => {
    const wanted = event.clientX - picture.getBoundingClientRect().left;
    at = nearest(steps, place.box.x0 + ((wanted - place.left) / (place.width - place.left - place.right)) * (place.box.x1 - place.box.x0));
    show();
  });
  picture.addEventListener('pointerleave', hide);
  picture.addEventListener('blur', hide);
  picture.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (!move) return;
    at = Math.max(0, Math.min(steps.length - 1, at + move));
    show();
    event.preventDefault();
    event.stopPropagation();
  });
}

function nearest(steps, wanted) {
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low && wanted - steps[low - 1] < steps[low] - wanted ? low - 1 : low;
}

function swatch(line) {
  const stroke = svg('line', { x1: 1, x2: 17, y1: 5, y2: 5, 'stroke-width': 3, 'stroke-dasharray': line.dash || null });
  stroke.style.stroke = line.colour;
  return svg('svg', { width: 18, height: 10, 'aria-hidden': 'true' }, stroke);
}

function legend(chart) {
  return el('ul', { class: 'legend' }, chartLines(chart).map((line) => {
    const hidden = curves.hidden.has(line.toggle);
    const flip = () => {
      if (!curves.hidden.delete(line.toggle)) curves.hidden.add(line.toggle);
      showCurves(curves.wanted);
    };
    return el('li', {}, el('button', { type: 'button', class: 'key', 'aria-pressed': String(!hidden), onclick: flip, title: 'show or hide' },
      swatch(line), el('span', {}, line.name), el('b', {}, figure(line.points.at(-1)[1]))));
  }));
}

function chartCard(chart, large) {
  const heading = large ? chart.title : el('a', { href: address({ figure: chart.id }), title: 'enlarge' }, chart.title);
  const card = el('article', { class: large ? 'card chart large' : 'card chart', 'data-chart': plain(chart.id) },
    el('h3', {}, heading), el('div', { class: 'plot' }), legend(chart));
  curves.drawn.push([card, chart, large]);
  return card;
}

function redraw() {
  for (const [card, chart, large] of curves.drawn) if (card.isConnected && card.clientWidth) drawChart(card, chart, large);
}

function curveTools() {
  const smoothing = el('input', {
    type: 'range', min: 0, max: 0.99, step: 0.01, value: curves.smoothing, id: 'smoothing',
    oninput: (event) => {
      curves.smoothing = Number(event.target.value);
      event.target.nextElementSibling.textContent = curves.smoothing ? curves.smoothing.toFixed(2) : 'off';
      redraw();
    },
  });
  const pick = choice([['', 'all figures'], ...data.charts.map((chart) => [chart.id, chart.title])],
    (event) => { location.hash = event.target.value ? address({ figure: event.target.value }) : '#curves'; }, { id: 'figure' });
  pick.value = curves.wanted;
  return el('div', { class: 'tools' }, field('Figure', pick),
    el('label', { class: 'field' }, el('span', {}, 'Smoothing'), smoothing,
      el('output', {}, curves.smoothing ? curves.smoothing.toFixed(2) : 'off')));
}

function showCurves(wanted) {
  const view = clear(byId('view-curves'));
  const one = data.charts.find((chart) => chart.id === wanted);
  curves.wanted = one ? wanted : '';
  curves.drawn = [];
  view.append(summary(), ...notices());
  const evaluations = one ? null : evaluationTable();
  if (!data.charts.length) {
    view.append(...[evaluations].filter(Boolean), el('p', { class: 'empty' }, 'No figures yet: the first line of metrics is written after the warm start.'));
    return;
  }
  view.append(curveTools());
  if (one) {
    view.append(el('p', {}, el('a', { href: '#curves' }, '← all figures')), chartCard(one, true));
  } else {
    const first = (chart) => chart.main && (chart.id !== 'rollout/failed' || chartLines(chart).some((line) => line.points.some((point) => point[1])));
    const main = data.charts.filter(first);
    const rest = data.charts.filter((chart) => !first(chart));
    if (evaluations) view.append(evaluations);
    if (main.length) view.append(el('div', { class: 'grid-of-charts' }, main.map((chart) => chartCard(chart, false))));
    if (rest.length) {
      view.append(el('details', { class: 'more', open: !main.length, ontoggle: redraw },
        el('summary', {}, count(rest.length, 'more figure')), el('div', { class: 'grid-of-charts' }, rest.map((chart) => chartCard(chart, false)))));
    }
  }
  redraw();
}
