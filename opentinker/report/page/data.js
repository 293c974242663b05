// The data: gzip in base64 in script elements that are no scripts. Chunks of episodes are opened when they are looked at.

async function unpack(id) {
  const text = byId(id).textContent;
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : Uint8Array.from(atob(text), (mark) => mark.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
  return JSON.parse(await new Response(stream).text());
}

const OPEN_CHUNKS = 24;

const data = {
  runs: [],
  charts: [],
  index: null,
  size: 0,
  chunks: new Map(),

  async open() {
    const main = await unpack('data');
    data.runs = main.runs;
    data.charts = main.charts;
    data.index = main.index;
    data.size = (main.index.id || []).length;
    for (const run of data.runs) run.tables = run.vocabularies.map(vocabulary);
  },

  // A column's value of an episode, texts looked up.
  text(column, row) {
    return data.index.s[data.index[column][row]];
  },

  texts(column, row) {
    return data.index[column][row].map((place) => data.index.s[place]);
  },

  chunk(number) {
    let found = data.chunks.get(number);
    if (found) data.chunks.delete(number); // to the end: it was looked at last
    else found = unpack(`chunk-${number}`).then((chunk) => ({ ...chunk, ids: [] }));
    data.chunks.set(number, found);
    if (data.chunks.size > OPEN_CHUNKS) data.chunks.delete(data.chunks.keys().next().value);
    return found;
  },

  async episode(row) {
    const chunk = await data.chunk(data.index.chunk[row]);
    const run = data.runs[data.index.run[row]];
    const s = (place) => chunk.s[place];
    const [turns, messages, finals, error, outcome, seed, timings, seats] = chunk.e[data.index.slot[row]];
    return {
      row,
      run,
      id: data.text('id', row),
      status: STATUS[data.index.status[row]],
      turns: turns.map((turn) => readTurn(chunk, run, turn)),
      messages: messages.map(([sender, to, text, turn]) => ({ sender: s(sender), to: to.map(s), text: s(text), turn })),
      finals: finals.map(([agent, prompt]) => ({ agent: s(agent), ids: promptIds(chunk, prompt) })),
      seats: seats.map(([agent, who]) => ({ agent: s(agent), who: s(who) })),
      error: s(error),
      outcome: s(outcome),
      seed: s(seed),
      timings: s(timings),
    };
  },
};

const STATUS = ['terminated', 'truncated', 'failed'];

function readTurn(chunk, run, turn) {
  const s = (place) => chunk.s[place];
  const [agent, role, policy, version, index, attempt, phase, prompt, drawn, observation, action, valid, legal, trainable,
    reward, penalty, reply, error, advantage] = turn;
  const name = policy < 0 ? null : s(policy);
  const table = name !== null && Object.hasOwn(run.policies, name) ? run.tables[run.policies[name]] : null;
  return {
    agent: s(agent), role: s(role), policy: name, version, index, attempt, phase: s(phase),
    prompt: prompt < 0 ? [] : promptIds(chunk, prompt),
    completion: drawn && { ids: drawn[0], logprobs: drawn[1], finish: s(drawn[2]), text: s(drawn[3] < 0 ? reply : drawn[3]) },
    observation: s(observation), action: s(action), valid: Boolean(valid), legal, trainable: Boolean(trainable),
    reward, penalty, reply: s(reply), error: s(error), advantage, table,
  };
}

// A prompt is the first ids of an earlier one and what follows.
function promptIds(chunk, place) {
  if (!chunk.ids[place]) {
    const chain = [];
    let at = place;
    while (at >= 0 && !chunk.ids[at]) {
      chain.push(at);
      at = chunk.p[at][0];
    }
    for (const next of chain.reverse()) {
      const [base, keep, ...rest] = chunk.p[next];
      chunk.ids[next] = base < 0 ? rest : chunk.ids[base].slice(0, keep).concat(rest);
    }
  }
  return chunk.ids[place];
}

// Vocabularies: an id's bytes. Text is what the bytes of all ids together spell.

function vocabulary({ ids, texts, special }) {
  const bytes = new Map(ids.map((id, place) => [id, Uint8Array.from(texts[place], (mark) => mark.charCodeAt(0))]));
  return { bytes, special: new Set(special.map((place) => ids[place])) };
}


// What each id adds to the text, in order. A character that several ids spell stands at the last of them.
function spell(table, ids) {
  const reader = new TextDecoder('utf-8', { ignoreBOM: true });
  return ids.map((id, place) => {
    const bytes = table && table.bytes.get(id);
    if (!bytes) {
      return { id, text: `${reader.decode()}⟨${id}⟩`, unknown: true };
    }
    const text = reader.decode(bytes, { stream: place < ids.length - 1 });
    return { id, text, bytes, part: text === '', special: table.special.has(id) };
  });
}

function spelled(table, ids) {
  return spell(table, ids).map((piece) => piece.text).join('');
}

function hex(bytes) {
  return Array.from(bytes, (byte) => '\\x' + byte.toString(16).padStart(2, '0')).join('');
}
