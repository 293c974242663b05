// One episode, turn by turn: what an agent saw, what was drawn token by token, what followed.

const FEW_TURNS = 40;
const FEW_TOKENS = 3000;
const SHARED = 24; // so many ids that stood in the agent's last turn already are folded away

const CHANCES = [0.9, 0.5, 0.2, 0.05, 0.01];

function chanceClass(logprob) {
  if (typeof logprob !== 'number') return 'p-none';
  const chance = Math.exp(logprob);
  const place = CHANCES.findIndex((least) => chance >= least);
  return `p-${place < 0 ? CHANCES.length : place}`;
}

function percent(chance) {
  if (chance >= 0.9995) return '100 %';
  return chance >= 0.0001 ? `${(100 * chance).toPrecision(3)} %` : `${(100 * chance).toExponential(1)} %`;
}

function chanceLegend() {
  const names = ['≥ 90 %', '≥ 50 %', '≥ 20 %', '≥ 5 %', '≥ 1 %', '< 1 %'];
  return el('div', { class: 'chances', 'aria-label': 'How probable a sampled token was' }, 'Probability of a sampled token',
    names.map((name, place) => el('span', { class: `token p-${place}` }, name)),
    el('span', { class: 'token untrained' }, 'not trained on'), el('span', { class: 'prompt-sample' }, 'prompt, not trained on'));
}

function glyphs(piece) {
  if (piece.part) return '·';
  return piece.text === '' ? '∅' : piece.text.replaceAll('\n', '↵\n').replaceAll('\t', '→\t');
}

function tokenFacts(piece, logprob, trained) {
  const rows = [
    ['text', el('code', {}, piece.part ? hex(piece.bytes) : JSON.stringify(piece.text))],
    ['id', String(piece.id)],
    ['log-prob', figure(logprob, 5)],
    ['probability', typeof logprob === 'number' ? percent(Math.exp(logprob)) : '–'],
    ['mask', trained ? '1: sampled, trained on' : '0: sampled, not trained on'],
  ];
  return el('table', { class: 'readout' }, el('tbody', {}, rows.map(([name, value]) =>
    el('tr', {}, el('th', { scope: 'row' }, name), el('td', {}, value)))));
}

// The sampled ids. One of them can be reached by Tab, the others from there by the arrow keys.
function tokenLine(turn) {
  const { ids, logprobs } = turn.completion;
  const pieces = spell(turn.table, ids);
  const box = el('div', { class: 'tokens', role: 'group', 'aria-label': `${count(ids.length, 'sampled token')}` });
  const facts = (node) => {
    const place = Number(node.dataset.place);
    tip.show(node, tokenFacts(pieces[place], logprobs[place], turn.trainable));
  };
  const add = (from, to) => pieces.slice(from, to).forEach((piece, offset) => {
    const place = from + offset;
    const kind = ['token', chanceClass(logprobs[place])];
    if (!turn.trainable) kind.push('untrained');
    if (piece.special || piece.unknown) kind.push('special');
    box.append(el('span', { class: kind.join(' '), 'data-place': place, tabindex: place ? -1 : 0 }, glyphs(piece)));
  });
  add(0, FEW_TOKENS);
  if (pieces.length > FEW_TOKENS) {
    const more = el('button', {
      type: 'button',
      onclick: () => {
        more.remove();
        add(FEW_TOKENS, pieces.length);
      },
    }, `show ${count(pieces.length - FEW_TOKENS, 'further token')}`);
    box.append(more);
  }
  const token = (event) => event.target.closest && event.target.closest('.token');
  box.addEventListener('pointerover', (event) => token(event) && facts(token(event)));
  box.addEventListener('pointerleave', tip.hide);
  box.addEventListener('focusin', (event) => token(event) && facts(token(event)));
  box.addEventListener('focusout', tip.hide);
  box.addEventListener('keydown', (event) => {
    const move = { ArrowLeft: 'previousElementSibling', ArrowRight: 'nextElementSibling' }[event.key];
    if (!move || !token(event)) return;
    const next = event.target[move];
    if (next && next.classList.contains('token')) next.focus();
    event.preventDefault();
    event.stopPropagation();
  });
  return box;
}

// A prompt as text: marks of the chat form are dimmed, what the agent itself sampled earlier is underlined.
function promptText(pieces, from, to, sampled) {
  const out = el('pre', { class: 'prompt' });
  let text = '';
  let look = '';
  const flush = () => {
    if (text) out.append(look ? el('span', { class: look }, text) : say(text));
    text = '';
  };
  for (let place = from; place < to; place++) {
    const piece = pieces[place];
    const next = piece.special || piece.unknown ? 'special' : sampled.some(([low, high]) => place >= low && place < high) ? 'sampled-before' : '';
    if (next !== look) flush();
    look = next;
    text += piece.text;
  }
  flush();
  return out;
}

function promptBlock(turn, before) {
  if (!turn.prompt.length) {
    return el('div', { class: 'block' }, el('h4', {}, 'Observation'), el('pre', { class: 'prompt' }, turn.observation));
  }
  const pieces = spell(turn.table, turn.prompt);
  const fold = before.keep >= SHARED && before.keep < pieces.length ? before.keep : 0;
  const parts = [el('h4', {}, 'Prompt ', el('small', {}, count(pieces.length, 'token')))];
  if (fold) {
    parts.push(el('details', { class: 'fold' }, el('summary', {}, `${count(fold, 'token')} as in ${turn.agent}'s last turn`),
      promptText(pieces, 0, fold, before.sampled)));
  }
  parts.push(promptText(pieces, fold, pieces.length, before.sampled));
  if (!turn.table) parts.push(el('p', { class: 'hint' }, 'No tokenizer of this policy was found, so ids stand for text. It was told:'),
    el('pre', { class: 'prompt' }, turn.observation));
  return el('div', { class: 'block' }, parts);
}

function replyBlock(turn) {
  if (!turn.completion) return el('div', { class: 'block' }, el('h4', {}, 'Reply'), el('pre', { class: 'prompt' }, turn.reply || turn.action));
  const { ids, logprobs, finish, text } = turn.completion;
  const sum = logprobs.every((value) => typeof value === 'number') ? logprobs.reduce((one, other) => one + other, 0) : null;
  const says = [count(ids.length, 'token'), `ended by ${finish}`];
  if (sum !== null && ids.length > 1) says.push(`log-prob ${figure(sum)}`);
  const parts = [el('h4', {}, 'Sampled ', el('small', {}, says.join(' · '))), tokenLine(turn)];
  if (!turn.table) parts.push(el('p', { class: 'hint' }, 'As text: '), el('pre', { class: 'prompt' }, text));
  if (turn.reply !== text) parts.push(el('h4', {}, 'Read as'), el('pre', { class: 'prompt' }, turn.reply));
  return el('div', { class: 'block' }, parts);
}

function badge(kind, ...text) {
  return el('span', { class: `badge ${kind}` }, text);
}

function sign(value) {
  return typeof value !== 'number' || value === 0 ? '' : value > 0 ? 'good' : 'bad';
}

function follows(turn) {
  const items = [];
  const add = (name, value, kind) => items.push(el('div', {}, el('dt', {}, name), el('dd', { class: kind || '' }, value)));
  add('action', el('code', {}, turn.valid ? turn.action : 'none'));
  add('reply', turn.valid ? 'valid' : 'invalid', turn.valid ? '' : 'bad');
  add('reward', signed(turn.reward), sign(turn.reward));
  if (turn.penalty !== 0) add('penalty', signed(turn.penalty), 'bad');
  if (turn.advantage !== null) add('advantage', signed(turn.advantage), sign(turn.advantage));
  if (turn.legal !== null) add('legal actions', String(turn.legal));
  return el('dl', { class: 'follows' }, items);
}

function turnCard(turn, number, before, seat) {
  const who = turn.policy === null ? 'no policy' : `${turn.policy}@${turn.version === null ? '?' : turn.version}`;
  const place = [who, `decision ${turn.index + 1}`];
  if (turn.attempt) place.push(`attempt ${turn.attempt + 1}`);
  if (turn.phase) place.push(`phase ${turn.phase}`);
  return el('article', { class: `turn seat-${seat % 6}`, 'aria-label': plain(`Turn ${number + 1}, ${turn.agent}`) },
    el('header', {}, el('h3', {}, el('span', { class: 'number' }, String(number + 1)), turn.agent,
      turn.role !== turn.agent && el('small', {}, ` as ${turn.role}`)),
    el('span', { class: 'place' }, place.join(' · ')), !turn.valid && badge('bad', 'invalid'), !turn.trainable && badge('', 'not trained on')),
    promptBlock(turn, before), replyBlock(turn),
    !turn.valid && turn.error && el('p', { class: 'notice bad' }, turn.error), follows(turn));
}

// How much of a prompt stood in the agent's last turn, and which of it the agent had sampled.
function goesOn(turn, last) {
  if (!last) return { keep: 0, sampled: [] };
  const whole = last.ids;
  let keep = 0;
  while (keep < whole.length && keep < turn.prompt.length && whole[keep] === turn.prompt[keep]) keep++;
  return { keep, sampled: last.sampled.filter(([low]) => low < keep).map(([low, high]) => [low, Math.min(high, keep)]) };
}

function storyOf(episode) {
  const story = [];
  const last = new Map();
  const seats = new Map(episode.seats.map(({ agent }, place) => [agent, place]));
  const told = (place) => episode.messages.filter((message) => message.turn === place).forEach((message) => story.push(() =>
    el('aside', { class: 'message' }, el('b', {}, message.sender), ' to ', message.to.join(', ') || 'nobody', el('pre', {}, message.text))));
  episode.turns.forEach((turn, number) => {
    told(number);
    const before = goesOn(turn, last.get(turn.agent));
    story.push(() => turnCard(turn, number, before, seats.get(turn.agent) || 0));
    const drawn = turn.completion ? turn.completion.ids : [];
    last.set(turn.agent, {
      ids: turn.prompt.concat(drawn),
      sampled: [...before.sampled, [turn.prompt.length, turn.prompt.length + drawn.length]],
    });
  });
  told(episode.turns.length);
  for (const { agent, ids } of episode.finals) {
    const seen = episode.turns.find((turn) => turn.agent === agent && turn.table);
    story.push(() => el('details', { class: 'fold' }, el('summary', {}, `What ${agent} would have seen next (${count(ids.length, 'token')})`),
      promptText(spell(seen && seen.table, ids), 0, ids.length, [])));
  }
  return story;
}

function storyView(episode) {
  const box = el('div', { class: 'story' });
  const story = storyOf(episode);
  const add = (from) => {
    box.append(...story.slice(from, from + FEW_TURNS).map((make) => make()));
    const left = story.length - from - FEW_TURNS;
    if (left <= 0) return;
    const more = el('button', {
      type: 'button',
      class: 'more',
      onclick: () => {
        more.remove();
        add(from + FEW_TURNS);
      },
    }, `show the next ${Math.min(left, FEW_TURNS)} of ${left} further turns`);
    box.append(more);
  };
  add(0);
  return box;
}
