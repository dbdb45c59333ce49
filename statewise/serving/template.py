"""Chat templates: messages as one text, by the Jinja template that comes with a run.

A template is parsed by Jinja and evaluated here, never executed by it. What it can do is what the functions below do:
loop over messages, compare, join and strip texts. It reaches no attribute of a Python object, calls nothing, and every
loop, every text and the number of steps are bounded. A template that needs more is refused by name.

A text is a sequence of pieces that know where they come from. So what a message says stays plain text, even if it looks
like a special token, and what follows an answer can be told from the answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jinja2 import Environment, TemplateError, nodes

from statewise.serving.job import Refused
from statewise.specs import UserError

_MOST_STEPS = 200_000
_MOST_CHARACTERS = 1 << 22
_MOST_WORK = 1 << 24  # characters and pieces of texts that are read, names and items that are copied
_LARGEST_NUMBER = 1 << 62
_LONGEST_SENTENCE = 300  # characters of a message that a template writes
_SIDES = {"strip": (0, -1), "lstrip": (0,), "rstrip": (-1,)}


class Piece(NamedTuple):
    text: str
    message: int | None  # which message says it; None: the template itself


Text = tuple[Piece, ...]


class _Space(dict[str, Any]):
    """What `namespace()` makes: names that a loop may change."""


class ChatTemplate:
    def __init__(self, source: str, *, tokens: Mapping[str, str]) -> None:
        """`tokens` are the texts of `bos_token` and the like. A template that is not valid is refused."""
        try:
            self._tree = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[]).parse(source)
            for const in self._tree.find_all(nodes.Const):
                str(const.value).encode()  # half a character cannot be read by a tokenizer
        except (TemplateError, RecursionError, ValueError) as error:
            raise UserError(f"the chat template is not valid: {_brief(str(error))}") from None
        self._tokens = {name: (Piece(text, None),) for name, text in tokens.items()}

    def render(self, messages: Sequence[tuple[str, str]], *, answer: bool) -> Text:
        """Roles and contents as one text; with `answer`, up to where the next answer begins."""
        listed = [
            {"role": (Piece(role, None),), "content": (Piece(said, at),)} for at, (role, said) in enumerate(messages)
        ]
        names: dict[str, Any] = {**self._tokens, "messages": listed, "add_generation_prompt": answer}
        try:
            return tuple(piece for piece in _Evaluation().block(self._tree.body, names) if piece.text)
        except RecursionError:
            raise _unsupported("it is nested too deeply") from None


class _Evaluation:
    def __init__(self) -> None:
        self._steps = self._characters = self._worked = 0

    def _step(self) -> None:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise _unsupported(f"it needs more than {_MOST_STEPS} steps for these messages")

    def _work(self, parts: int) -> None:
        """One step reads or copies so many parts."""
        self._worked += parts
        if self._worked > _MOST_WORK:
            raise _unsupported(f"it reads more than {_MOST_WORK} characters for these messages")

    def _bounded(self, text: Text) -> Text:
        self._characters += sum(len(piece.text) for piece in text) + len(text)
        if self._characters > _MOST_CHARACTERS:
            raise _unsupported(f"it makes more than {_MOST_CHARACTERS} characters")
        return text

    def block(self, body: Sequence[nodes.Node], names: dict[str, Any]) -> Iterator[Piece]:
        for node in body:
            self._step()
            match node:
                case nodes.Output(nodes=parts):
                    for part in parts:
                        yield from self._bounded(_shown(self.value(part, names)))
                case nodes.If(test=test, body=inner, elif_=others, else_=otherwise):
                    for each, chosen in ((test, inner), *((other.test, other.body) for other in others)):
                        if _truth(self.value(each, names)):
                            yield from self.block(chosen, names)
                            break
                    else:
                        yield from self.block(otherwise, names)
                case nodes.For(target=nodes.Name(name=name), recursive=False):
                    yield from self._loop(node, name, names)
                case nodes.Assign(target=nodes.Name(name=name), node=value):
                    names[name] = self.value(value, names)
                case nodes.Assign(target=nodes.NSRef(name=name, attr=attribute), node=value):
                    space = names.get(name)
                    if not isinstance(space, _Space):
                        raise _unsupported(f"{name} is not a namespace")
                    space[attribute] = self.value(value, names)
                case _:
                    raise _unsupported(f"{type(node).__name__} on line {node.lineno}")

    def _loop(self, node: nodes.For, name: str, names: dict[str, Any]) -> Iterator[Piece]:
        items = self.value(node.iter, names)
        if not isinstance(items, list):
            raise _unsupported(f"a loop over something else than messages on line {node.lineno}")
        if node.test is not None:
            self._work(len(names) * len(items))
            items = [item for item in items if _truth(self.value(node.test, {**names, name: item}))]
        for at, item in enumerate(items):
            self._step()
            self._work(len(names))
            loop: dict[str, Any] = {"index": at + 1, "index0": at, "length": len(items)}
            loop |= {"first": not at, "last": at + 1 == len(items)}
            loop |= {
                "previtem": items[at - 1] if at else None,
                "nextitem": items[at + 1] if at + 1 < len(items) else None,
            }
            yield from self.block(node.body, {**names, name: item, "loop": loop})  # what it sets is gone afterwards
        if not items:
            yield from self.block(node.else_, {**names})

    def value(self, node: nodes.Node | None, names: dict[str, Any]) -> Any:
        """A text, a number, a truth value, a message, a list of messages, or None for what is not defined."""
        value = self._value(node, names)
        self._read(value)
        return value

    def _read(self, value: Any) -> None:
        """Whatever is done with a text next takes time for each of its characters."""
        if isinstance(value, tuple):
            self._work(sum(len(piece.text) for piece in value) + len(value))

    def _value(self, node: nodes.Node | None, names: dict[str, Any]) -> Any:
        self._step()
        match node:
            case None:
                return None
            case nodes.Filter() | nodes.Test() | nodes.Call() if node.dyn_args or node.dyn_kwargs:
                pass  # what has no case below is refused, and none may ignore an argument
            case nodes.Filter(kwargs=[_, *_]) | nodes.Test(kwargs=[_, *_]) | nodes.Test(args=[_, *_]):
                pass
            case nodes.Call(node=nodes.Getattr(), kwargs=[_, *_]):
                pass
            case nodes.Const(value=value):
                return (Piece(value, None),) if isinstance(value, str) else value
            case nodes.TemplateData(data=text):
                return (Piece(text, None),)
            case nodes.Name(name=name):
                return names.get(name)
            case nodes.Getattr(node=whole, attr=name):
                return _member(self.value(whole, names), name)
            case nodes.Getitem(node=whole, arg=nodes.Slice(start=start, stop=stop, step=step)):
                items, bounds = self.value(whole, names), [self.value(end, names) for end in (start, stop, step)]
                whole_numbers = all(end is None or isinstance(end, int) for end in bounds)
                if not isinstance(items, list) or not whole_numbers or bounds[2] == 0:
                    raise _unsupported(f"a part of something else than messages on line {node.lineno}")
                part = items[slice(*bounds)]
                self._work(len(part))
                return part
            case nodes.Getitem(node=whole, arg=key):
                return _member(self.value(whole, names), _plain(self.value(key, names)))
            case nodes.Concat(nodes=parts):
                return self._bounded(tuple(piece for part in parts for piece in _shown(self.value(part, names))))
            case (
                nodes.Add(left=left, right=right)
                | nodes.Sub(left=left, right=right)
                | nodes.Mod(left=left, right=right)
            ):
                return self._sum(type(node), self.value(left, names), self.value(right, names), node.lineno)
            case nodes.Neg(node=inner):
                number = self.value(inner, names)
                return self._sum(nodes.Sub, 0, number, node.lineno)
            case nodes.And(left=left, right=right):
                first = self.value(left, names)
                return self.value(right, names) if _truth(first) else first
            case nodes.Or(left=left, right=right):
                first = self.value(left, names)
                return first if _truth(first) else self.value(right, names)
            case nodes.Not(node=inner):
                return not _truth(self.value(inner, names))
            case nodes.CondExpr(test=test, expr1=left, expr2=right):
                return self.value(left if _truth(self.value(test, names)) else right, names)
            case nodes.Compare():
                return self._compared(node, names)
            case nodes.List(items=items) | nodes.Tuple(items=items):
                return [self.value(item, names) for item in items]
            case nodes.Test(name="defined", node=inner):
                return self.value(inner, names) is not None
            case nodes.Test(name="undefined" | "none", node=inner):
                return self.value(inner, names) is None
            case nodes.Test(name="string", node=inner):
                return isinstance(self.value(inner, names), tuple)
            case nodes.Filter(name="trim", node=inner, args=[]):
                return _stripped(self.value(inner, names), "strip")
            case nodes.Filter(name="length" | "count", node=inner, args=[]):
                counted = self.value(inner, names)
                if not isinstance(counted, list | tuple):
                    raise _unsupported(f"length of something else than messages or a text on line {node.lineno}")
                return len(_plain(counted))
            case nodes.Filter(name="default", node=inner, args=[other]):
                given = self.value(inner, names)
                return self.value(other, names) if given is None else given
            case nodes.Call(node=nodes.Getattr(node=whole, attr="strip" | "lstrip" | "rstrip" as how), args=[]):
                return _stripped(self.value(whole, names), how)
            case nodes.Call(node=nodes.Getattr(node=whole, attr="startswith" | "endswith" as how), args=[part]):
                text, end = (_text(self.value(each, names)) for each in (whole, part))
                return text.startswith(end) if how == "startswith" else text.endswith(end)
            case nodes.Call(node=nodes.Name(name="namespace"), args=[], kwargs=given):
                return _Space({each.key: self.value(each.value, names) for each in given})
            case nodes.Call(node=nodes.Name(name="raise_exception"), args=[reason], kwargs=[]):
                told = _text(self.value(reason, names))
                refused = f"the run's chat template refuses these messages: {_brief(told)}"
                raise Refused("invalid", refused, param="messages")
        named = f"{type(node).__name__} {getattr(node, 'name', '')}".strip()
        raise _unsupported(f"{named} on line {node.lineno}")

    def _sum(self, kind: type[nodes.Node], left: Any, right: Any, line: int) -> Any:
        if kind is nodes.Add and isinstance(left, tuple) and isinstance(right, tuple):
            return self._bounded(left + right)
        if isinstance(left, int) and isinstance(right, int) and not (kind is nodes.Mod and right == 0):
            number = left + right if kind is nodes.Add else left - right if kind is nodes.Sub else left % right
            if abs(number) <= _LARGEST_NUMBER:
                return number
        raise _unsupported(f"{kind.__name__} of other things than texts or small numbers on line {line}")

    def _compared(self, node: nodes.Compare, names: dict[str, Any]) -> bool:
        left = self.value(node.expr, names)
        for operand in node.ops:
            right = self.value(operand.expr, names)
            try:
                match operand.op:
                    case "eq" | "ne":
                        holds = self._equal(left, right) == (operand.op == "eq")
                    case "in" | "notin":
                        holds = self._among(left, right) == (operand.op == "in")
                    case "lt" | "lteq" | "gt" | "gteq":
                        first, second = _ordered(left), _ordered(right)
                        less = first < second if operand.op in ("lt", "gteq") else first > second
                        holds = less == (operand.op in ("lt", "gt"))
            except TypeError:
                raise _unsupported(f"a comparison on line {node.lineno}") from None
            if not holds:
                return False
            left = right
        return True

    def _equal(self, left: Any, right: Any) -> bool:
        """Compared here, a step for each part: a list can hold another so often that Python would not end."""
        self._step()
        if isinstance(left, list) and isinstance(right, list):
            return len(left) == len(right) and all(map(self._equal, left, right))
        if isinstance(left, dict) and isinstance(right, dict):
            self._work(len(left) + len(right))
            return left.keys() == right.keys() and all(self._equal(value, right[key]) for key, value in left.items())
        if isinstance(left, tuple) and isinstance(right, tuple):
            self._read(left + right)
        return bool(_plain(left) == _plain(right))

    def _among(self, part: Any, whole: Any) -> bool:
        if isinstance(whole, list):
            return any(self._equal(part, item) for item in whole)
        return _ordered(part) in _plain(whole)


def _member(whole: Any, key: Any) -> Any:
    """Of a message, a namespace or a loop by name; of a list by number. Anything else has no members."""
    if isinstance(whole, dict) and isinstance(key, str):
        return whole.get(key)
    if isinstance(whole, list) and isinstance(key, int):
        return whole[key] if -len(whole) <= key < len(whole) else None
    if whole is None:
        raise _unsupported(f"{key} of something that is not defined")
    raise _unsupported(f"{key} of a text or a number")


def _plain(value: Any) -> Any:
    return "".join(piece.text for piece in value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    """What has no parts, as a text."""
    if isinstance(value, list | dict):
        raise _unsupported("a list or a message as a text")
    return str(_plain(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, list | dict):
        raise TypeError("it has parts")
    return _plain(value)


def _truth(value: Any) -> bool:
    return bool(_plain(value))


def _shown(value: Any) -> Text:
    if isinstance(value, tuple):
        return value
    if value is None:
        return ()
    if isinstance(value, list | dict):
        raise _unsupported("it shows a whole message")
    return (Piece(str(value), None),)


def _stripped(value: Any, how: str) -> Text:
    if not isinstance(value, tuple):
        raise _unsupported(f"{how} of something that is no text")
    pieces = list(value)
    for side in _SIDES[how]:
        strip = str.lstrip if side == 0 else str.rstrip
        while pieces:
            pieces[side] = pieces[side]._replace(text=strip(pieces[side].text))
            if pieces[side].text:
                break
            pieces.pop(side)
    return tuple(pieces)


def _brief(said: str) -> str:
    """A sentence that may hold what somebody else wrote, as one line."""
    return " ".join(said[: 4 * _LONGEST_SENTENCE].split())[:_LONGEST_SENTENCE]


def _unsupported(what: str) -> Refused:
    return Refused(
        "invalid",
        f"the run's chat template cannot be used here: {_brief(what)}; ask /v1/completions with a prompt",
        param="messages",
        code="chat_template_not_supported",
    )
