"""Names and codes of languages, by which the columns of parallel texts are often named."""

import re

_CODES = """
af am ar az be bg bn bs ca cs cy da de el en eo es et eu fa fi fr ga gl gu he hi hr hu hy id is it ja ka kk km kn ko ky
la lb lt lv mk ml mn mr ms mt my nb ne nl nn no pa pl ps pt ro ru si sk sl so sq sr sv sw ta te tg th tk tl tr tt uk ur
uz vi xh yi zh zu
"""  # of ISO 639-1
_NAMES = """
afrikaans albanian amharic arabic armenian azerbaijani basque belarusian bengali bosnian bulgarian burmese catalan
chinese croatian czech danish dutch english esperanto estonian finnish french galician georgian german greek gujarati
hebrew hindi hungarian icelandic indonesian irish italian japanese kannada kazakh khmer korean latin latvian lithuanian
macedonian malay malayalam maltese marathi mongolian nepali norwegian persian polish portuguese punjabi romanian russian
serbian sinhala slovak slovenian somali spanish swahili swedish tagalog tamil tatar telugu thai turkish ukrainian urdu
uzbek vietnamese welsh yiddish zulu
"""
_OWN_NAMES = """
deutsch español français italiano latina nederlands norsk polski português suomi svenska türkçe čeština
ελληνικά русский українська עברית العربية فارسی हिन्दी 中文 英文 日本語 한국어
arabisch chinesisch englisch französisch griechisch italienisch japanisch koreanisch lateinisch latein
niederländisch polnisch portugiesisch russisch spanisch türkisch ukrainisch
allemand anglais espagnol alemán francés inglés
"""  # of large ones in themselves, and of some in German, French and Spanish
_CODE = re.compile(r"([a-z]{2})(-(hans|hant|latn|cyrl|arab))?(-([a-z]{2}|\d{3}))?")  # is_correct is none
_KNOWN_CODES, _KNOWN_NAMES = frozenset(_CODES.split()), frozenset(f"{_NAMES} {_OWN_NAMES}".split())


def is_language(text: str) -> bool:
    """Return whether a text is a language's name, such as "German" or "Deutsch", or its code, ``de`` or ``de-AT``."""
    plain = text.strip().lower().replace("_", "-")
    code = _CODE.fullmatch(plain)
    return plain in _KNOWN_NAMES or (code is not None and code[1] in _KNOWN_CODES)
