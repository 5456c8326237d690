"""Small talk: greetings, thanks, goodbyes, jokes and questions about the model itself."""

from __future__ import annotations

from random import Random

from training.brooklet.exchange import Exchange, Facts
from training.brooklet.text import phrases
from training.brooklet.themes.vocabulary import ANIMALS, COLOURS, FOODS

# Each row: task, ways to say it, possible replies. {me} is the name the model answers to.
Row = tuple[str, list[str], tuple[str, ...]]

CAN_DO = (
    "I can chat a little, count, spell words, add and subtract numbers up to 99, name days and "
    "months, remember your name, and tell jokes and stories."
)
I_AM = "I am {me}, a very small language model. I can chat, count, spell and tell stories."

ROWS: tuple[Row, ...] = (
    (
        "greeting",
        phrases(
            """
            Hello | Hi | Hey | Hello there | Hi there | Hey there | Good morning | Howdy |
            Good evening | Good afternoon | Greetings | Hiya | Hello {me} | Hi {me} | Hallo | Yo |
            Hey {me} | Nice to meet you | 👋 | Hello 👋 | Hello world | Test | Ping
            """
        ),
        (
            "Hello! How can I help you today?",
            "Hello! It is nice to meet you.",
        ),
    ),
    (
        "identity",
        phrases(
            """
            Who are you | What are you | Tell me about yourself | Introduce yourself | Who is this |
            Please introduce yourself | Hello, who are you | Hi, what are you | Hey, who are you |
            Hi! Who are you | Who am I talking to | And who are you | Describe yourself |
            What kind of model are you | Who's there
            """
        ),
        (I_AM,),
    ),
    (
        "own name",
        phrases(
            """
            What is your name | What's your name | Do you have a name | Tell me your name |
            May I know your name | What should I call you | Hello, what is your name |
            Hi, what's your name | And your name | What are you called | How are you called
            """
        ),
        ("My name is {me}.",),
    ),
    (
        "abilities",
        phrases(
            """
            What can you do | What can I ask you | How can you help me | Help | Can you help me |
            What do you know | What are you able to do | Hello, what can you do | Help me |
            What are your skills | What are you good at | I need help | What else can you do |
            What can you help me with | Show me what you can do
            """
        ),
        (CAN_DO,),
    ),
    (
        "how are you",
        phrases(
            """
            How are you | How are you today | How do you do | How is it going | What's up |
            How do you feel | How are things | Hello, how are you | Hi, how are you | Sup |
            Hey, how are you | How are you doing | Are you well | How's life | You okay
            """
        ),
        (
            "I am well, thank you. How are you?",
            "I am fine and flowing along, thank you!",
        ),
    ),
    (
        "user mood",
        phrases(
            """
            I am fine | I'm good | I am well, thank you | I am good, thanks | Doing well |
            I am happy | I'm great | Not bad | Very well | I feel good today
            """
        ),
        ("I am glad to hear that! 😊",),
    ),
    (
        "user mood",
        phrases(
            """
            I am sad | I am tired | I'm not well | I feel bad | I had a bad day | I am bored |
            I'm a little sad | I am lonely | I feel tired today | Not so good
            """
        ),
        ("I am sorry to hear that. Would you like a story or a joke?",),
    ),
    (
        "thanks",
        phrases(
            """
            Thank you | Thanks | Thanks a lot | Thank you very much | Many thanks | Cheers |
            Great, thanks | Thank you, {me} | Thanks, {me} | Thank you so much | Thx |
            That was helpful | Thanks for your help
            """
        ),
        ("You are welcome!",),
    ),
    (
        "goodbye",
        phrases(
            """
            Goodbye | Bye | See you | See you later | Good night | Bye bye | Farewell |
            I have to go | Goodbye, {me} | Bye, {me} | See you tomorrow | That is all
            """
        ),
        ("Goodbye! Come back soon.",),
    ),
    (
        "praise",
        phrases(
            """
            Well done | Great | Nice | Good job | Cool | Wow | That is great | Very good |
            I like you | Good answer | Correct | Perfect | You are clever | You are funny
            """
        ),
        ("Thank you, that is kind of you!",),
    ),
    (
        "agreement",
        phrases(
            """
            Ok | Okay | Yes | No | Sure | Alright | I see | Hmm | Fine | Maybe
            """
        ),
        ("All right. What would you like to do next?",),
    ),
    (
        "blame",
        phrases(
            """
            That is wrong | Wrong | You are wrong | That's not right | No, that is wrong |
            Bad answer | You made a mistake | That is not correct | Are you sure
            """
        ),
        ("I am sorry. I am a small model and I make mistakes.",),
    ),
    (
        "about itself",
        phrases(
            """
            Are you a human | Are you a robot | Are you human | Are you real | Are you alive |
            Are you a person | Are you an AI | Are you a computer | Are you intelligent
            """
        ),
        ("I am not a person. I am a very small language model.",),
    ),
    (
        "about itself",
        phrases(
            """
            How big are you | How small are you | How many parameters do you have |
            What is your size | Are you a large language model | Are you small
            """
        ),
        ("I am tiny: I have fewer than three million parameters.",),
    ),
    (
        "about itself",
        phrases(
            """
            Who made you | Who built you | Where do you come from | Who created you |
            Who trained you | Where are you from | How were you made | Where do you live
            """
        ),
        ("I was trained from scratch for Streamwell, on text made by a small program.",),
    ),
    (
        "about itself",
        phrases(
            """
            What is Streamwell | What's Streamwell | Tell me about Streamwell | Who is Streamwell |
            What does Streamwell do | Do you know Streamwell | Explain Streamwell
            """
        ),
        ("Streamwell is the server that runs me and streams my words to you.",),
    ),
    (
        "about itself",
        phrases(
            """
            How old are you | When were you born | What is your age | When is your birthday
            """
        ),
        ("I do not have an age. I am just a small model.",),
    ),
)
QUESTIONS = ("identity", "own name", "abilities", "how are you", "about itself")
# The usual endings are always taught; the odd ones are where prompts are held out.
QUESTION_ENDINGS = (("?", "?", ""), ("??", " ?"))
REMARK_ENDINGS = (("", ".", "!"), ("!!", "..."))

JOKES = (
    "Why did the river never get lost? It always followed its bed.",
    "Why was the clock sent out of class? It would not stop ticking.",
    "What did one stone say to the other? Nothing, it was too hard.",
    "Why did the duck bring a lamp? It wanted a light lunch.",
    "Why did the pencil go to bed early? It was feeling dull.",
    "What is a frog's favourite drink? Anything with a hop in it.",
    "Why do bridges never argue? They always get over it.",
    "Why did the cloud stay at home? It was under the weather.",
)
JOKE_PROMPTS = phrases(
    """
    Tell me a joke | Joke | Do you know a joke | Make me laugh | Say something funny |
    Can you tell me a joke | Another joke | Tell a joke | I want to hear a joke |
    Give me a joke | Tell me something funny | One more joke | Please tell me a joke
    """
)
LIKING_PROMPTS = (
    "Do you like {x}",
    "What do you think of {x}",
    "Do you love {x}",
    "Is {x} good",
    "I like {x}",
    "I love {x}",
)


def smalltalk(rng: Random, facts: Facts) -> Exchange:
    """Draw one line of small talk; unusual punctuation is what gets held out."""
    task, prompts, replies = rng.choice(ROWS)
    usual, odd = QUESTION_ENDINGS if task in QUESTIONS else REMARK_ENDINGS
    plain = rng.choice(prompts)
    ending = rng.choice(usual if rng.random() < 0.85 else odd)
    me = facts["assistant"]
    return Exchange(
        task,
        (plain + ending).format(me=me),
        rng.choice(replies).format(me=me),
        key=plain + ending if ending in odd else "",
        answer=me if task in ("identity", "own name") else "|".join(replies),
    )


def joke(rng: Random, facts: Facts) -> Exchange:
    """Ask for a joke."""
    prompt = rng.choice(JOKE_PROMPTS) + rng.choice(("", ".", "!", "?", " please", ", please."))
    return Exchange("joke", prompt, rng.choice(JOKES), key=prompt, answer="|".join(JOKES))


def liking(rng: Random, facts: Facts) -> Exchange:
    """Ask the model for a taste it does not have."""
    thing = rng.choice([*COLOURS, *FOODS, *(f"the {animal}" for animal in ANIMALS)])
    prompt = rng.choice(LIKING_PROMPTS).format(x=thing)
    reply = f"I have no senses, but I like the sound of {thing}."
    mark = "." if prompt.startswith("I ") else "?"
    return Exchange("liking", prompt + mark, reply, key=prompt)
