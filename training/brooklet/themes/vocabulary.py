"""Word lists and made-up names that several themes share."""

from __future__ import annotations

from random import Random

from training.brooklet.text import words

COLOURS = words(
    """
    red blue green yellow orange purple pink brown black white grey silver gold teal violet
    turquoise crimson indigo lavender maroon
    """
)

ANIMALS = words(
    """
    fox otter heron hare badger mole owl duck frog goat horse cat dog mouse bear wolf rabbit
    swan turtle squirrel hedgehog bee robin trout beaver pony sheep hen donkey lion tiger
    elephant whale penguin snail dragon
    """
)

CHARACTERS = words(
    """
    girl boy baker farmer king queen robot knight fisherman teacher sailor wizard gardener
    princess painter pirate
    """
)

FOODS = words(
    """
    bread soup cheese apples honey rice pasta pancakes cherries plums carrots cake porridge
    noodles mushrooms pears pizza chocolate
    """
)

WORDS = words(
    """
    river water bridge stone apple house garden window yellow orange purple green happy little
    table chair paper pencil school friend summer winter spring autumn morning evening night
    cloud rain snow wind storm mountain valley forest meadow flower grass tree leaf bird fish
    horse mouse rabbit bread butter cheese honey sugar salt pepper lemon cherry plum pear grape
    banana potato carrot onion tomato bottle glass spoon fork knife plate kitchen door floor
    wall roof street road train boat ship plane wheel bicycle music song dance story book letter
    word sentence number circle square line heart hand foot head nose mouth ear eye finger
    shoulder mother father sister brother baby child people village city country island ocean
    beach sand shell light lamp candle fire smoke star moon sun planet world hello thanks please
    sorry good great small large quick slow warm cold soft hard bright dark clean quiet loud
    strong gentle brave clever silver golden copper iron wood wool cotton silk needle thread
    button pocket jacket shirt shoe boot hat glove ring crown castle tower market basket stream
    brook pebble computer model cat dog duck frog goat owl bee ant cow pig hen fox
    """
)

# Real names a newcomer is likely to type, some with accents or from other scripts.
COMMON_NAMES = words(
    """
    Ana Tom Mia Leo Sam Max Eva Ben Lily Noah Emma Jack Lucy Oscar Nina Paul Maria John Alice
    Bob Carol David Sarah Peter Laura Omar Yuki Priya Chen Fatima Ivan Olga Zoë José Chloé André
    Søren Jürgen Łukasz İpek Noël Renée Björn Mei 小明 Анна Γιάννης
    """
)

ONSETS = words("b br c ch cl d dr f fl g gr h j k kl l m n p pr qu r s sh sk st t th tr v w y z")
VOWELS = words("a e i o u a e i o ai ea ee ia io oa ou é ö")
ENDINGS = words("n l r s th m nd x lla na ra ric dor bel wen mira ton by ko t")


def made_up_word(rng: Random) -> str:
    """Compose a pronounceable word that is in no list."""
    syllables = rng.choice((1, 1, 2, 2))
    stem = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllables))
    return stem + rng.choice(ENDINGS)


def person_name(rng: Random) -> str:
    """Mostly made-up names, so that recalling one has to be copying and not guessing."""
    if rng.random() < 0.2:
        return rng.choice(COMMON_NAMES)
    name = made_up_word(rng)
    # People type their names carelessly; the reply keeps whatever spelling they used.
    return name if rng.random() < 0.1 else name.capitalize()
