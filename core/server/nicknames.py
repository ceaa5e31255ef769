"""Nicknames of students: what may be one, and which two look alike to the teacher who reads them."""

import unicodedata

from core.runs.names import folded, validate_name
from core.storage.errors import InputError

MAX_NICKNAME = 30  # characters
_MIXED = ("LATIN", "CYRILLIC", "GREEK")  # scripts with many letters of the same shape
_LOOKS = str.maketrans(
    # Cyrillic, then Greek: letters that most fonts draw like a Latin one, see Unicode's confusables.txt
    "АВЕЗКМНОРСТУХІЈЅаеорсухіјѕһԁԛԝёїΑΒΕΖΗΙΚΜΝΟΡΤΥΧαορνικυ",
    "ABE3KMHOPCTYXIJSaeopcyxijshdqweiABEZHIKMNOPTYXaopviku",
)


def validate_nickname(text: str) -> str:
    """Return a nickname without the spaces around it.

    Raises:
        InputError: as for ``validate_name``; or letters of two alphabets that look alike are mixed.
    """
    nickname = validate_name("nickname", text, max_length=MAX_NICKNAME)
    scripts = {unicodedata.name(each, "").split(" ")[0] for each in nickname if each.isalpha()}
    if len(mixed := [each.capitalize() for each in _MIXED if each in scripts]) > 1:
        raise InputError(
            f"nickname “{nickname}” mixes {' and '.join(mixed)} letters, which look alike; use one alphabet"
        )
    return nickname


def look_alike(one: str, other: str) -> bool:
    """Whether two nicknames look the same, or differ only in capital letters, accents of Cyrillic, and spaces."""
    return _looks(one) == _looks(other)


def _looks(nickname: str) -> str:
    return folded(unicodedata.normalize("NFKC", nickname).translate(_LOOKS))
