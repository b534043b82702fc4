"""What comes from elsewhere, made harmless where it is printed: on a terminal, in Markdown, in a
shell. JSON needs none of this: it keeps every character."""

from __future__ import annotations

import re
import shlex

# Letters that have no ink: `str.isprintable` takes them for visible.
BLANK_LETTERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
PUNCTUATION = re.escape("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
IN_MARKDOWN = (
    (re.compile(rf"\\(?=[{PUNCTUATION}])"), "&#92;"),  # it would escape what follows
    (re.compile(r"&(?=#?\w+;)(?!#92;)"), "&amp;"),
    (re.compile("<"), "&lt;"),
    (re.compile(r"\](?=[(\[])"), "]\\\\"),  # no link and no picture
    (re.compile(r"^(\s*)\[(?=[^]]*\]:)"), r"\1\\["),  # no target of a link
)


MOST_SHOWN, MOST_LINE = 240, 8000  # characters of a word and of a line that are told whole
SHOWN_ENDS = 60


def brief(text: str, most: int = MOST_SHOWN) -> str:
    """The text, or its beginning and its length where it is longer than anybody reads."""
    if len(text) <= most:
        return text
    return f"{text[:SHOWN_ENDS]}... ({len(text):,} characters)"


def brief_line(line: str) -> str:
    """A line whose words are all brief, and which is not longer than a screen."""
    words = " ".join(brief(word.rstrip(":;,")) + _tail(word) for word in line.split(" "))
    if len(words) <= MOST_LINE:
        return words
    return f"{words[:MOST_LINE]}... ({len(words):,} characters)"


def _tail(word: str) -> str:
    return word[len(word.rstrip(":;,")) :]


def visible(text: str, keep: str = "") -> str:
    """The text with each character that does not show, or that moves others, as an escape.

    These are control characters, bidirectional marks, zero-width and unassigned ones, halves of
    surrogates, and all spaces but the common and the unbroken one. Those in `keep` stay.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(char if char in keep or _shows(char) else _escape(char) for char in text)


def _shows(char: str) -> bool:
    return char == "\u00a0" or (char.isprintable() and char not in BLANK_LETTERS)


def _escape(char: str) -> str:
    """As Python and bash write it: `\\x1b`, `\\u202e`."""
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def in_markdown(text: str) -> str:
    """A line of Markdown that holds no HTML, link or picture and no hidden character; emphasis and
    code of ours stay."""
    text = visible(text)
    for pattern, harmless in IN_MARKDOWN:
        text = pattern.sub(harmless, text)
    return text


def shell(*words: object) -> str:
    """Words as one line that a shell reads back as the same words."""
    return " ".join(_shell_word(str(word)) for word in words)


def _shell_word(word: str) -> str:
    if visible(word) == word:
        return shlex.quote(word)
    quoted = word.replace("\\", "\\\\").replace("'", "\\'")
    return f"$'{visible(quoted)}'"  # quoting of bash, zsh and ksh that can hide nothing
