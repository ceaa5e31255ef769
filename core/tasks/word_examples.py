"""The words of the task ``words``, and ten sentences of them with the outputs of a model that got most of them wrong.

Words, sentences and outputs are those of the document that the preset ``words-reversal-gru-as-told`` follows: a GRU
with additive attention whose encoder runs over PAD. It answered 137 of its 1,000 test sentences exactly.
"""

from dataclasses import dataclass

_WORDS = (
    "the cat sat dog ran big small red blue on in mat hat house car tree bird fish quick lazy brown fox jumps over "
    "eats drinks happy sad fast slow old new hot cold"
)
WORDS = tuple(_WORDS.split())


@dataclass(frozen=True)
class WordExample:
    """A sentence and what the document's own model wrote for it; ``reference`` is the sentence reversed."""

    sentence: str
    output: str

    @property
    def reference(self) -> str:
        """The correct answer."""
        return " ".join(reversed(self.sentence.split()))

    @property
    def is_match(self) -> bool:
        """Whether the document's model was right."""
        return self.output == self.reference


WORD_EXAMPLES = (
    WordExample("cold hot in blue on old blue lazy", "lazy blue blue old on on blue in hot cold"),
    WordExample("car ran new hot fox hot old hot", "hot hot old hot hot fox hot new ran car"),
    WordExample(
        "house fish dog jumps car drinks old drinks fast slow", "slow fast drinks old drinks car jumps dog fish house"
    ),
    WordExample("hat old hat", "blue hat old hat hat hat old hat lazy hat old hat"),
    WordExample("drinks old on sat hat happy fast red bird drinks", "drinks bird red fast happy hat sat on old drinks"),
    WordExample("sat big mat hat fox old cold on", "on on cold old fox fox hat mat big sat"),
    WordExample("hat fish slow sat car", "car sat car car car sat slow fish hat"),
    WordExample("dog sad on eats on over car", "car car car over on eats on sad dog"),
    WordExample("lazy lazy ran fish old new fast quick fox", "fox quick fast new old fish fish ran lazy lazy"),
    WordExample("red hot car eats hot the cold", "cold cold cold the hot eats car hot red"),
)
