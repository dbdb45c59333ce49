// Sections of this site, ranked by BM25 for the words of a question. `search.py` cuts text into the same terms.
const TERM = /[a-z0-9_]+|[\u4e00-\u9fff]+/g;
const ENDING = /(?:ations?|ings?|ed|es|s|ly|e)$/;
const SHOWN = 12, K = 1.2, B = 0.75;
const CHAPTER = 1.5; // a chapter explains; the reference is for those who know what they look for
const REPEATS = /-(summary|exercises|next)$/, REPEATED = 0.4; // sections that name what others explain
// Words of a question that say nothing about its subject.
const ASKING = new Set(
  "a an and are as at be between by can difference do does for from how in is it many of on or one the to two what when which why with".split(" "),
);
const ASKING_ZH = /为什么|有什么|什么|怎么|怎样|如何|哪个|是否|[的和与在是有吗呢]/g;

function terms(text) {
  const found = [];
  for (const term of text.toLowerCase().match(TERM) ?? []) {
    if (term[0] >= "\u4e00") {
      if (term.length === 1) found.push(term);
      for (let at = 0; at < term.length - 1; at++) found.push(term.slice(at, at + 2));
    } else {
      const short = term.replace(ENDING, "");
      found.push(short.length > 2 ? short : term);
    }
  }
  return found;
}

function ranked(question) {
  const { entries, lengths, postings } = window.bookIndex;
  const mean = lengths.reduce((sum, length) => sum + length, 0) / lengths.length;
  const scores = new Map();
  const asked = question.toLowerCase().replace(ASKING_ZH, " ").split(/\s+/).filter((word) => !ASKING.has(word));
  for (const term of new Set(terms(asked.join(" ")))) {
    const places = postings[term] ?? [];
    const rare = Math.log(1 + (entries.length - places.length / 2 + 0.5) / (places.length / 2 + 0.5));
    for (let at = 0; at < places.length; at += 2) {
      const [entry, count] = [places[at], places[at + 1]];
      const length = 1 - B + (B * lengths[entry]) / mean;
      scores.set(entry, (scores.get(entry) ?? 0) + (rare * count * (K + 1)) / (count + K * length));
    }
  }
  for (const [entry, score] of scores) {
    const address = entries[entry][0];
    const part = address.startsWith("docs/") || address.startsWith("api/") ? 1 : REPEATS.test(address) ? CHAPTER * REPEATED : CHAPTER;
    scores.set(entry, score * part);
  }
  return [...scores].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, SHOWN).map(([entry]) => entries[entry]);
}

function element(name, text, attributes = {}) {
  return Object.assign(document.createElement(name), { textContent: text, ...attributes });
}

function show(question) {
  const list = document.getElementById("found");
  const results = question.trim() ? ranked(question) : [];
  list.replaceChildren(...results.map(([address, title, page, text]) => {
    const item = element("li", "");
    item.append(element("a", title, { href: address }), element("span", title === page ? "" : ` · ${page}`), element("p", text));
    return item;
  }));
  document.getElementById("nothing").hidden = results.length > 0 || !question.trim();
}

const field = document.getElementById("question");
field.value = new URLSearchParams(location.search).get("q") ?? "";
field.addEventListener("input", () => show(field.value));
show(field.value);
