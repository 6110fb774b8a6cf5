"""What a text is about by its beginning: the lines that stand as its title, and the subject of its first sentence."""

import re

from graphrag_local.text import phrases, placed_words

# What stands between a subject and what is said of it: forms of "to be", and the marks that open an apposition.
_IS = (
    "is was are were ist war sind waren est était etait fut sont étaient es fue era son eran è fu sono é foi eram jest był była было быть является был была "
    "были являлся является هو هي كان كانت هم är var er on oli adalah ialah là"
).split()
_SUBJECT_ENDS = re.compile(rf"\s(?:{'|'.join(_IS)})(?=\s)|[是為为](?=.)|\s*[(（,，،]|\s[—–-]\s|は")
_COPULA = re.compile(rf"\s(?:{'|'.join(_IS)})(?=\s)|[是為为](?=.)|\s[—–-]\s|は")
_DEFINES = re.compile(r"\s*[(（]|\s\w+\s(?:an?|the|one|ein|eine|der|die|das|une?|la|le|una?|el|il|um|uma)\s|\s[—–]\s|是|は")
LONGEST_HEAD = 9  # words


def heads(sentence: str) -> list[tuple[int, int]]:
    """The subject that a first sentence begins with, as at most two (start, end): what stands before the first verb, bracket or comma, and before the
    verb. A single word before a comma and a capital begins a list ("Love, Honor and Obey") and is none."""
    found = []
    for pattern in (_SUBJECT_ENDS, _COPULA):
        match = pattern.search(sentence)
        words = placed_words(sentence[: match.start()]) if match else []
        limit = 2 * LONGEST_HEAD if words and words[0].bare else LONGEST_HEAD
        listed = match is not None and len(words) == 1 and match.group().strip() in ",，،" and sentence[match.end() :].lstrip()[:1].isupper()
        if 0 < len(words) <= limit and not listed and any(word.capital or word.bare for word in words):
            found.append((words[0].start, words[-1].end))
    return list(dict.fromkeys(found))


LONGEST_TITLE = 14  # words of a line that stands as a title
LONGEST_LINE = 120  # characters of one
_TITLE_LINE = re.compile(rf"[ \t#=*_>-]*(?P<title>\S[^\n]{{0,{LONGEST_LINE}}}?)[ \t#=*_]*\n(?P<gap>\s*)(?=(?P<next>\S))")
_COLON = re.compile(r"[:：]\s+(?=\S)")
_LABEL = re.compile(r"[^\W\d_]{2,15}[ \t]?[:：][ \t]*(?=\S)")
_ENDS_NO_TITLE = (*".,;。，；、،", "…")


def title_lines(text: str) -> tuple[list[str], int]:
    """The lines that a text begins with and that stand as its title (at most two), and where the text itself begins.

    A short line without the stop of a sentence, before an empty line or one that begins anew; with a label before it ("Title: …"), also what follows
    that. Where there is none, what stands before a colon in the first line.
    """
    titles: list[str] = []
    begin = 0
    while len(titles) < 2 and (line := _TITLE_LINE.match(text, begin)):
        title, anew = line["title"], "\n" in line["gap"] or not line["next"].islower()
        words = placed_words(title)
        if not anew or not 0 < len(words) <= LONGEST_TITLE or title.endswith(_ENDS_NO_TITLE) or not (words[0].capital or words[0].bare or title[0].isdigit()):
            break
        titles.append(title)
        begin = line.end()
    forms = [form for title in titles for form in dict.fromkeys((_LABEL.sub("", title, count=1), title))]
    if titles:
        label = _LABEL.match(text, begin) if len(forms) > len(titles) else None  # then labels are this text's way
        return forms, label.end() if label else begin
    for colon in _COLON.finditer(text[:LONGEST_LINE].partition("\n")[0]):
        before = text[: colon.start()].strip()
        if not 0 < len(placed_words(before)) <= LONGEST_TITLE or "." in before:
            break
        forms.append(before)
        begin = colon.end()
    return forms, begin


_STOPS = r"\n!?:;.。“”\"«»"
_ALONE = rf"(?P<title>[^'‘’{_STOPS}][^{_STOPS}]{{1,{LONGEST_LINE}}})(?=\n[ \t]*\n(?P<next>[^\n]{{1,160}}))"
_SECTION = re.compile(rf"(?:\A|\n[ \t]*\n)[ \t]*(?:(?P<marked>#)|{_ALONE})")


def sections(text: str) -> list[int]:
    """Where the title of what follows stands: a line marked as one, or a line alone of which a word with a capital comes again at once; for people
    who speak, and chapters, it does not."""
    found = []
    for match in _SECTION.finditer(text):
        said = {word.key for word in placed_words(match["title"] or "") if word.capital or word.bare}
        if match["marked"] or not said.isdisjoint(word.key for word in placed_words(match["next"])):
            found.append(match.start("marked") if match["marked"] else match.start("title"))
    return found


_BRACKETS = re.compile("[(（][^()（）]*[)）]")


def also_called(sentence: str) -> list[tuple[int, int]]:
    """Further names of the subject of a first sentence: those between its first comma and its verb, outside brackets ("…, known as …, is")."""
    plain = _BRACKETS.sub(lambda match: " " * len(match.group()), sentence)
    verb = _COPULA.search(plain)
    comma = re.search("[,，،]", plain[: verb.start()]) if verb else None
    if verb is None or comma is None or verb.start() > 300:
        return []
    return [(begin, end) for begin, end in phrases(plain[: verb.start()]) if begin > comma.start()]


def defines(sentence: str, end: int) -> bool:
    """Whether a sentence goes on after its subject as articles of reference books do: a bracket, a dash, or a verb with an article."""
    return _DEFINES.match(sentence, end) is not None
