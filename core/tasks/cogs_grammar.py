"""The grammar of COGS: its words, its sentences, and the sentences of its generalization sets.

Kim & Linzen 2020, https://arxiv.org/abs/2010.05465, whose words, kinds of sentences and generalization cases (table 1
and appendix) these are. The paper does not print all probabilities; those here are the rounded shares of the official
training file. ``core.tasks.cogs`` has the task and what a sentence means.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# The words of each role. Earlier words are drawn more often, as in the official files.
NAMES = _words("""
    Emma Liam Olivia Noah Ava William Isabella Sophia James Charlotte Oliver Benjamin Mia Elijah Amelia Lucas Harper
    Mason Abigail Evelyn Logan Elizabeth Michael Jacob Emily Mila Ethan Henry Daniel Alexander Aria Matthew Ella Sofia
    Sebastian Jackson Madison Avery Samuel Aiden Layla Luna Camila David Victoria Jack Luke Penelope Riley Owen Scarlett
    Grace Chloe Ryan Grayson Wyatt John Lillian Skylar Zoey Nora Jayden Christopher Stella Hannah Asher Addison Levi
    Carter Brooklyn Ellie Theodore Isaac Aubrey Jaxon Eleanor Lily Lincoln Joseph Natalie Gabriel Joshua Anthony Zoe
    Bella Hazel Caleb Aurora Savannah Mateo Violet Leo Andrew Claire Audrey Nathan Thomas Leah Julian Dylan
""")

ANIMATES = _words("""
    girl boy cat dog baby child teacher frog lion chicken mouse bear horse monkey giraffe duck butterfly bunny bird
    penguin sailor hero monster student scientist goose princess bee professor crocodile lawyer cow tiger president
    manager customer zebra fish patient kid fly deer pig turkey lamb queen doctor hen moose creature king kitty donkey
    pupil consumer passenger sheep prisoner host squirrel turtle tourist friend coach puppy wolf writer politician
    driver mother soldier director poet citizen farmer landlord researcher guy duke visitor father pony judge tenant
    prince guest governor chief priest buyer producer champion journalist dealer resident guard servant captain human
    spokesman
""")

THINGS = _words("""
    cake donut cookie box rose drink raisin melon sandwich strawberry ball balloon bat block book chalk crayon game doll
    glue lollipop banana biscuit hamburger pretzel muffin potato pickle pancake pen yogurt sweetcorn jigsaw pencil
    pumpkin pizza brush radio shoe scarf toy spoon cracker present pillow cloud mandarin hammer jacket towel flower
    chair clock knife can basket gumball jar plate toothbrush bucket penny newspaper weapon guitar ring soap watch hat
    cup fruit bottle shirt bell plant crown flag tool mirror brick purse molecule crystal beer coin liver bean key
    needle leaf seed fig brain wine chemical bowl button shell bag nail
""")

PLACES = {
    "in": _words("""
        house room car garden box glass cup bag hole cot bottle vehicle storage cabinet vessel pit barrel pot shoe
        envelope tin soup can bin bush basin tent vase dumpster cupboard parcel wardrobe well van container sack drawer
        coffin sink blender bucket crate stadium tower puddle bakery tube closet cylinder haystack china nest truck
        penthouse mug package fridge pile kennel bun shoebox trunk bathtub refrigerator cage train backpack condo corner
        bunker saucepan dungeon cart microwave taxi fishbowl hammock backyard basket pool trailer swamp cafe pyramid
        spaceship casket teapot crib trap jeep cubicle pod palace wagon tomb bookstore castle jar tub monastery
    """),
    "on": _words("""
        table stage bed chair stool road tree box speaker computer surface seat boat rock cabinet desk bowl bench shelf
        plate cloth pedestal sheet TV sofa piano ladder paper book log barrel pad bible tiger throne pillow leaflet
        yacht gravel cupboard towel blanket coffin notebook canvas carpet rug tray windowsill tripod panel counter dog
        bag booklet glacier beach cushion ball cat branch stand corpse trampoline hanger truck platter rag deck sock
        stack chessboard mound cake cookie futon block couch keyboard train mattress napkin machine floor bun rack
        device crack bike leaf cot board plaque vessel podium tabletop boulder brick dish turntable
    """),
    "beside": _words("""
        table stage bed chair book road machine tree seat house speaker car computer rock bag cup bottle vehicle glass
        box cabinet key painting desk boat flower cassette shoe bucket whale trophy TV cat cage lion poster hedge
        surgeon sword baron mirror bat toy log headmaster crystal torch wolf doll duck helicopter sink bench truck
        dragon nest foreigner philosopher giant basket statue sculpture rod chemist piano clock tent pillar throne
        barrel broker trainee keyboard ladder stool bush skull bear fox sphere corpse beast lamp lemon monkey cylinder
        valve worm bike genius monk murderer pepper bicycle sailor hammer warrior bin gardner yacht
    """),
}

UNERGATIVE = _words("""
    sleep smile laugh sneeze cry dance talk nap walk jog scream stutter run snore scoff smirk gasp snooze giggle frown
""")

OBJECT_OMITTED = _words("""
    eat paint draw clean cook dust hunt nurse juggle call notice see examine pack know hear sketch observe study
    investigate
""")

UNACCUSATIVE = _words("""
    roll freeze burn shorten float grow slide break split change disintegrate crumple decompose collapse snap improve
    enlarge inflate double redden
""")

TRANSITIVE = _words("""
    like help find love poke adore admire appreciate tolerate respect miss throw value hold pierce touch worship
    discover stab toss
""")

DATIVE = _words("""
    give lend sell offer feed send pass award serve bring rent return hand slip loan forward promise mail post wire
""")

CLAUSE = _words("""
    like hope say notice believe confess prove declare think support appreciate admire dream value wish tolerate mean
    respect expect imagine
""")

CONTROL = _words("""
    want prefer need intend try plan attempt expect hope wish crave enjoy like hate long yearn dream mean love itch
""")

INFINITIVES = _words("""
    walk run sleep nap sneeze eat hunt read cook talk dance giggle paint jog smirk call sketch investigate dust clean
""")

PASSIVE = (*OBJECT_OMITTED, *UNACCUSATIVE, *TRANSITIVE)
IRREGULAR = {
    forms[0]: (forms[1], forms[-1])
    for forms in (
        each.split("/")
        for each in _words("""
            break/broke/broken bring/brought cry/cried draw/drew/drawn eat/ate/eaten feed/fed find/found
            freeze/froze/frozen give/gave/given grow/grew/grown hear/heard hold/held jog/jogged know/knew/known
            mean/meant nap/napped plan/planned prefer/preferred run/ran say/said see/saw/seen sell/sold send/sent
            ship/shipped sleep/slept slide/slid slip/slipped snap/snapped split/split stab/stabbed study/studied
            think/thought throw/threw/thrown try/tried worship/worshipped
        """)
    )
}
"""Past and participle of the verbs that do not just add -ed; ``lend`` does in COGS."""

# The words that generalization is tested on are in none of the lists: training shows each in one sentence or by itself.
SHOWN = {
    "hedgehog": "animate",
    "cockroach": "animate",
    "shark": "animate",
    "cobra": "animate",
    "hippo": "animate",
    "Lina": "name",
    "Charlie": "name",
    "Paula": "name",
    "crawl": "unergative",
    "bless": "transitive",
    "squeeze": "transitive",
    "bake": "object omitted",
    "shatter": "unaccusative",
    "teleport": "dative",
    "ship": "dative",
}

MAX_CLAUSES = MAX_PHRASES = 2  # clauses above the innermost one, and prepositional phrases of one noun, in training
_ZIPF = 1.25
_CLAUSE_SHARE, _PHRASE_SHARE, _NEXT_PHRASE_SHARE = 0.1, 0.5, 0.085
_NAME_SHARE, _NAME_THEME_SHARE, _ANIMATE_SHARE = 0.5, 0.16, 0.38

ACTIVE = {"unergative": 6, "object omitted": 6, "unaccusative": 8}
WITH_THEME = {"transitive": 17, "double object": 5, "prepositional dative": 5}
FRAMES = (
    ACTIVE
    | WITH_THEME
    | {"infinitive": 6, "passive": 17, "passive by": 17, "passive to": 5, "passive to by": 5}
    | {"passive double object": 4, "passive double object by": 4}
)
"""The kinds of an innermost clause with their weights."""
WITH_AGENT = {"unergative": 6, "object omitted": 6, "infinitive": 6} | WITH_THEME


@dataclass(frozen=True)
class Pattern:
    """What sentences have in common; without arguments, all of the grammar.

    Attributes:
        frames: kinds of the innermost clause with their weights.
        verb, infinitive, subject, theme: lemmas, nouns or names of the innermost clause; "" for any.
        clauses: clauses above the innermost one; None draws at most ``MAX_CLAUSES``.
        phrases: prepositional phrases of the theme; None draws at most ``MAX_PHRASES``, of a thing or person.
        subject_phrases: whether agents and subjects have prepositional phrases too, and so no names.
    """

    frames: tuple[tuple[str, int], ...] = tuple(FRAMES.items())
    verb: str = ""
    infinitive: str = ""
    subject: str = ""
    theme: str = ""
    clauses: int | None = None
    phrases: int | None = None
    subject_phrases: bool = False


def _of(
    frames: dict[str, int] | str, *, verb: str = "", infinitive: str = "", subject: str = "", theme: str = ""
) -> Pattern:
    weights = {frames: 1} if isinstance(frames, str) else frames
    return Pattern(tuple(weights.items()), verb=verb, infinitive=infinitive, subject=subject, theme=theme)


PASSIVES = {"passive": 1, "passive by": 1}


def generalization(max_depth: int) -> dict[str, tuple[Pattern, ...]]:
    """Return the patterns of the 21 generalization sets, which have equal shares of a set; 3 sets are structural.

    Args:
        max_depth: clauses and prepositional phrases inside each other, in the deepest sentences.
    """
    depths = range(MAX_CLAUSES + 1, max_depth + 1)
    return {
        "subject to object, common noun": (_of(WITH_THEME, theme="hedgehog"),),
        "subject to object, name": (_of(WITH_THEME, theme="Lina"),),
        "object to subject, common noun": (_of(WITH_AGENT, subject="cockroach"),),
        "object to subject, name": (_of(WITH_AGENT, subject="Charlie"),),
        "word alone to subject, common noun": (_of(WITH_AGENT, subject="shark"),),
        "word alone to subject, name": (_of(WITH_AGENT, subject="Paula"),),
        "word alone to object, common noun": (_of(WITH_THEME, theme="shark"),),
        "word alone to object, name": (_of(WITH_THEME, theme="Paula"),),
        "word alone to infinitive": (_of("infinitive", infinitive="crawl"),),
        "phrase of object to subject": (Pattern(subject_phrases=True),),
        "deeper clauses": tuple(Pattern(clauses=depth) for depth in depths),
        "deeper phrases": tuple(Pattern(tuple(WITH_THEME.items()), phrases=depth) for depth in depths),
        "active to passive": (_of(PASSIVES, verb="bless"),),
        "passive to active": (_of("transitive", verb="squeeze"),),
        "object omitted to transitive": (_of("transitive", verb="bake"),),
        "unaccusative to transitive": (_of("transitive", verb="shatter"),),
        "double object to prepositional dative": (_of("prepositional dative", verb="teleport"),),
        "prepositional dative to double object": (_of("double object", verb="ship"),),
        "agent to unaccusative subject": (_of("unaccusative", subject="cobra"),),
        "unaccusative subject to subject of omitted object": (_of("object omitted", subject="hippo"),),
        "unaccusative subject to unergative subject": (_of("unergative", subject="hippo"),),
    }


EXPOSURE = (
    _of(WITH_THEME, subject="hedgehog"),
    _of(WITH_THEME, subject="Lina"),
    _of("transitive", theme="cockroach"),
    _of("transitive", theme="Charlie"),
    _of("transitive", verb="bless"),
    _of("passive", verb="squeeze"),
    _of("object omitted", verb="bake"),
    _of("unaccusative", verb="shatter"),
    _of("double object", verb="teleport"),
    _of("prepositional dative", verb="ship"),
    _of("transitive", subject="cobra"),
    _of("unaccusative", subject="hippo"),
)
"""The patterns of the training sentences that show a word as it is not tested, one sentence each."""


def words_alone() -> list[str]:
    """Return the words that training shows by themselves: 3 that are tested, and 140 others of their kinds."""
    verbs = [*UNERGATIVE, *PASSIVE]
    return ["shark", "Paula", "crawl", *verbs, *NAMES[::5], *ANIMATES[::5], *THINGS[::5]]


def past(lemma: str) -> str:
    """Return the past of a verb."""
    return IRREGULAR[lemma][0] if lemma in IRREGULAR else lemma + ("d" if lemma.endswith("e") else "ed")


def participle(lemma: str) -> str:
    """Return the participle of a verb."""
    return IRREGULAR[lemma][1] if lemma in IRREGULAR else past(lemma)


def sentences(pattern: Pattern, rng: Random) -> Iterator[tuple[str, ...]]:
    """Draw sentences of a pattern without end, each as its words and a full stop; some are drawn again."""
    draw = _Draw(pattern, rng)
    while True:
        yield tuple(draw.sentence())


class _Draw:
    """Draws the parts of sentences of a pattern; see ``sentences``."""

    def __init__(self, pattern: Pattern, rng: Random) -> None:
        self.pattern, self.rng = pattern, rng
        self.frames, self.weights = zip(*pattern.frames, strict=True)

    def sentence(self) -> list[str]:
        above = self.pattern.clauses
        if above is None:
            above = self._repeated(MAX_CLAUSES, _CLAUSE_SHARE, _CLAUSE_SHARE)
        words = []
        for _ in range(above):
            words += [*self._agent(), past(self._word(CLAUSE)), "that"]
        words += self._clause(self.rng.choices(self.frames, self.weights)[0])
        return [words[0].capitalize(), *words[1:], "."]

    def _clause(self, frame: str) -> list[str]:
        agent, verb = self._agent(self.pattern.subject), self.pattern.verb
        match frame.removesuffix(" by"):
            case "unergative" | "object omitted":
                return [*agent, past(verb or self._word(UNERGATIVE if frame == "unergative" else OBJECT_OMITTED))]
            case "unaccusative":
                is_thing = not self.pattern.subject and self.rng.random() < 0.5
                subject = self._common(THINGS, has_phrase=self.pattern.subject_phrases) if is_thing else agent
                return [*subject, past(verb or self._word(UNACCUSATIVE))]
            case "infinitive":
                return [*agent, past(self._word(CONTROL)), "to", self.pattern.infinitive or self._word(INFINITIVES)]
            case "transitive":
                return [*agent, past(verb or self._word(PASSIVE)), *self._theme(is_any=True)]
            case "double object":
                return [*agent, past(verb or self._word(DATIVE)), *self._agent(has_phrase=False), *self._theme()]
            case "prepositional dative":
                recipient = self._agent(has_phrase=False)
                return [*agent, past(verb or self._word(DATIVE)), *self._theme(), "to", *recipient]
        by = ["by", *agent] if frame.endswith(" by") else []
        if frame.startswith("passive double object"):
            return [*self._agent(), "was", participle(self._word(DATIVE)), *self._theme(), *by]
        subject = self._common(THINGS, has_phrase=self.pattern.subject_phrases)
        if frame.startswith("passive to"):
            return [*subject, "was", participle(self._word(DATIVE)), "to", *self._agent(has_phrase=False), *by]
        return [*subject, "was", participle(verb or self._word(PASSIVE)), *by]

    def _agent(self, word: str = "", *, has_phrase: bool = True) -> list[str]:
        """Return a name or a person, with a phrase only if the pattern has agents with phrases."""
        has_phrase = has_phrase and self.pattern.subject_phrases
        if word:
            return self._given(word)
        if not has_phrase and self.rng.random() < _NAME_SHARE:
            return [self._word(NAMES)]
        return self._common(ANIMATES, has_phrase=has_phrase)

    def _theme(self, *, is_any: bool = False) -> list[str]:
        """Return a thing, or also a name or a person, with the phrases of the pattern."""
        given, phrases = self.pattern.theme, self.pattern.phrases
        if given in SHOWN and SHOWN[given] == "name":
            return [given]
        if not given and is_any and phrases is None and self.rng.random() < _NAME_THEME_SHARE:
            return [self._word(NAMES)]
        nouns = ANIMATES if is_any and self.rng.random() < _ANIMATE_SHARE else THINGS
        noun = self._given(given) if given else self._common(nouns, has_phrase=False)
        if phrases is None:
            phrases = self._repeated(MAX_PHRASES, _PHRASE_SHARE, _NEXT_PHRASE_SHARE)
        return noun + self._phrases(phrases)

    def _common(self, nouns: Sequence[str], *, has_phrase: bool) -> list[str]:
        count = self._repeated(MAX_PHRASES, 1, _NEXT_PHRASE_SHARE) if has_phrase else 0
        return [self._determiner(), self._word(nouns), *self._phrases(count)]

    def _phrases(self, count: int) -> list[str]:
        words: list[str] = []
        for _ in range(count):
            preposition = self.rng.choice(tuple(PLACES))
            words += [preposition, self._determiner(), self._word(PLACES[preposition])]
        return words

    def _given(self, word: str) -> list[str]:
        return [word] if SHOWN[word] == "name" else [self._determiner(), word]

    def _determiner(self) -> str:
        return self.rng.choice(("a", "the"))

    def _word(self, words: Sequence[str]) -> str:
        return self.rng.choices(words, cum_weights=_WEIGHTS[: len(words)])[0]

    def _repeated(self, most: int, first: float, following: float) -> int:
        """Return how often something is repeated: at least once with one probability, and again with another."""
        count = 0
        while count < most and self.rng.random() < (following if count else first):
            count += 1
        return count


_WEIGHTS = tuple(accumulate(rank**-_ZIPF for rank in range(1, 101)))
