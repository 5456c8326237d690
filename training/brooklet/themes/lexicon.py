"""Everyday words to spell, and blends of them that no list holds."""

from __future__ import annotations

from random import Random

from training.brooklet.text import words
from training.brooklet.themes.vocabulary import (
    ANIMALS,
    CHARACTERS,
    COLOURS,
    COMMON_NAMES,
    FOODS,
    WORDS,
    made_up_word,
)

EVERYDAY = words(
    """
    about above accept across action address adult advice afraid again against agree airport
    alarm almost alone already always amazing ancient angry animal another answer anything
    appear arrive article artist asleep aunt author autumn average awake away backpack bakery
    balance balloon bamboo barrel battle beautiful because become bedroom before begin behind
    believe belong below beside better between beyond biscuit blanket blossom bottom branch
    breakfast breath bright bring broken brush bucket build busy butterfly cabbage cabin camera
    camping captain careful carpet castle catch ceiling centre chance change cheap chicken
    chimney choice choose church cinema circus classroom climb coconut coffee collect college
    common compass complete concert continue corner correct cottage country couple courage
    cousin cover cricket crowd cucumber curtain cushion customer danger daughter decide
    delicious describe desert design dictionary different difficult dinner direction discover
    distance doctor dolphin double doubt dragon drawer dream driver during early earth easy edge
    eight either electric eleven empty engine enjoy enough enter equal escape evening every
    exactly example exciting exercise expect explain explore express extra famous fancy father
    feather festival field fifteen figure film finish first flavour follow foreign forget
    forward fountain freedom frozen furniture future garage garlic general giraffe glasses
    goodbye government grandmother greedy ground group guess guitar hammer handle hardly harvest
    healthy heaven height helmet helpful herself history holiday hospital hotel however hundred
    hungry hurry husband imagine important include inside insect instead interesting invite
    itself jacket jealous jelly jewel journey juice jungle kangaroo kettle kingdom kitten knee
    knock knowledge ladder language laugh laundry lazy leather lesson level library lightning
    listen lizard lonely lucky lunch machine magazine magic manager market marvellous matter
    maybe measure medicine member memory message middle midnight million minute mirror mistake
    modern moment money monkey monster museum mystery narrow nature nearly necessary neighbour
    neither nephew nervous newspaper nobody noise north nothing notice nowhere nurse object
    octopus offer office often opinion orchestra order ordinary original outside oven overnight
    owner package palace parade parent parrot passenger patient pattern peace peanut people
    perfect perhaps person photograph picnic picture pillow pineapple plastic platform player
    pleasure plenty pocket police popular possible postcard potion power practice prepare
    present pretty price private prize problem promise proud public pudding puppy puzzle pyramid
    quarter question quickly quite raincoat rather reach ready really reason receive recipe
    record remember repair reply restaurant return rhythm ribbon ridge right rocket rubber
    rucksack safety sandwich saucer scarf science scissors scratch search season secret sentence
    separate serious seven several shadow shampoo shelf sheriff shiver shopping should shower
    sign simple sister sketch skill sleep slippery smooth society soldier someone sorrow sound
    south space special spider spinach spirit splash square squeeze stadium stairs station
    stomach straight strange strawberry stream student subject sudden suggest suitcase sunflower
    sunshine supper surface surprise sweater swim symbol system tailor talent teapot telephone
    television temperature temple tennis terrible theatre themselves thermometer thirsty thought
    thousand through thunder ticket together tomorrow tongue toothbrush tornado touch towel
    traffic travel treasure triangle trouble trousers trumpet tunnel twelve twenty typical ugly
    umbrella uncle under understand uniform universe until unusual useful usually vacation
    valuable vanilla vegetable vehicle village violin visit visitor volcano voyage waiter walnut
    warrior watch weather wedding weekend weight welcome whale whether whisper whistle wicked
    without wizard wonderful worry wrist writer wrong yacht yawn yellow yesterday yoghurt young
    yourself zebra zero zigzag streaming server token prompt software keyboard internet robot
    laptop network python program digital assistant and are but for from have her here his how
    into its just know like many more most much must name not now only other our out over same
    say see she some such tell than that the their them then there these they this time too upon
    very was way were what when where which while who why will with word work would write year
    your favourite opposite polite called meet nice small number after count spell up my it
    story poem joke model chat chatbot user
    """
)
LEXICON = sorted({*EVERYDAY, *WORDS, *COLOURS, *ANIMALS, *CHARACTERS, *FOODS, *COMMON_NAMES})


def blend(rng: Random) -> str:
    """Join the start of one word to the end of another, which cuts words at any letter."""
    head, tail = rng.choice(LEXICON), rng.choice(LEXICON)
    start, end = rng.randint(1, len(head)), rng.randint(1, len(tail))
    return head[:start] + tail[-end:].lower()


def joined(rng: Random) -> str:
    """Join a whole word to the start or the end of another, or to another whole one.

    Some are capitalised, since a word that is has tokens of its own.
    """
    one, other = rng.choice(LEXICON).lower(), rng.choice(LEXICON).lower()
    place = rng.randrange(len(other))
    word = rng.choice((one + other, one + other[place:], other[: place + 1] + one))
    return word.capitalize() if rng.random() < 0.3 else word


def any_word(rng: Random) -> str:
    """Draw a word that people use, a blend or a made-up one; some are capitalised."""
    word = rng.choice((rng.choice(LEXICON), blend(rng), joined(rng), made_up_word(rng)))
    return word.capitalize() if rng.random() < 0.2 else word
