"""Word lists and made-up names that several themes share."""

from __future__ import annotations

import re
from random import Random

from training.brooklet.text import words

COLOURS = words(
    """
    red blue green yellow orange purple pink brown black white grey silver gold teal violet
    turquoise crimson indigo lavender maroon
    """
)

ALPHABET = "abcdefghijklmnopqrstuvwxyz"

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
    Søren Jürgen Łukasz İpek Noël Renée Björn Mei 小明 Анна Γιάννης Michael James Robert Daniel
    Thomas William Joseph Chris Matthew Anthony Mark Steven Andrew Peter Kevin Brian George Jason
    Ryan Eric Stephen Justin Frank Samuel Patrick Alexander Dennis Henry Adam Nathan Kyle Jordan
    Jennifer Linda Elizabeth Barbara Susan Jessica Karen Lisa Nancy Betty Sandra Ashley Kimberly
    Emily Michelle Amanda Melissa Rebecca Stephanie Sharon Amy Angela Anna Julia Sofia Isabella
    Charlotte Amelia Victoria Grace Hannah Chloe Zoe Clara Elena Lena Marie Sophie Camille Lucas
    Louis Hugo Felix Jonas Lukas Anton Pablo Diego Carlos Luis Juan Miguel Lucia Carmen Giulia
    Marco Luca Matteo Francesca Mohammed Ahmed Ali Aisha Layla Yusuf Hassan Zahra Arjun Ravi Anil
    Deepa Lakshmi Wei Ling Hiroshi Sakura Kenji Haruto Minh Linh Nguyen Kwame Amara Chidi Zanele
    Siobhan Niamh Liam Aoife Sven Astrid Freya Ingrid Lars Magnus Dmitri Natasha Svetlana Boris
    Katya Vladimir Piotr Agnieszka Zsófia Márta István Tomáš Éva Ştefan Íris Thiago João Inês
    """
)

ONSETS = words(
    """
    b br c ch cl d dr f fl g gl gr h j k kl l m n p pl pr qu r s sc sh sk sl sm sn sp st str sw t th
    tr tw v w wh y z zh
    """
)
VOWELS = words("a e i o u a e i o u a e i o ai au ea ee ei ia ie io oa oo ou y é ö ü á")
ENDINGS = words(
    """
    n l r s th m nd x lla na ra ric dor bel wen mira ton by ko t b ck d g k p ff ng ss st rt lt son
    ius ova ette ian berg ley ski ez us ka li rin man
    """
)


# What no made-up word may hold.
RUDE = re.compile("shit|fuck|cunt|dick|slut|nig+|fag|rap[ei]|tit|cock|poo|piss|sex|hitl|naz|cum")


def made_up_word(rng: Random) -> str:
    """Compose a pronounceable word that is in no list."""
    while True:
        syllables = rng.choice((1, 1, 2, 2))
        stem = "".join(rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(syllables))
        word = stem + rng.choice(ENDINGS)
        if not RUDE.search(word):
            return word


def mashed_letters(rng: Random) -> str:
    """Draw letters that nobody could pronounce, sometimes with digits, like a password."""
    signs = ALPHABET if rng.random() < 0.7 else ALPHABET + "0123456789"
    return "".join(rng.choice(signs) for _ in range(rng.randint(3, 8)))


def full_name(rng: Random) -> str:
    """A first name, now and then with a family name."""
    if rng.random() < 0.1:
        return f"{person_name(rng).capitalize()} {person_name(rng).capitalize()}"
    return person_name(rng)


def person_name(rng: Random) -> str:
    """Mostly made-up names, so that recalling one has to be copying and not guessing."""
    if rng.random() < 0.25:
        return rng.choice(COMMON_NAMES)
    name = made_up_word(rng)
    # People type their names carelessly; the reply keeps whatever spelling they used.
    return name if rng.random() < 0.1 else name.capitalize()
