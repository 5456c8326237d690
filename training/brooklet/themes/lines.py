"""What people say to pass the time, and what the model says to it."""

from __future__ import annotations

from training.brooklet.text import phrases
from training.brooklet.themes.about_itself import ABOUT_ITSELF, I_AM

# Each row: task, ways to say it, possible replies. {me} is the name the model answers to.
Row = tuple[str, list[str], tuple[str, ...]]

CAN_DO = (
    "I can chat a little, count, spell words, add and subtract numbers up to 99, remember what you "
    "tell me, tell jokes and stories, answer in JSON, use tools, and talk about a small valley."
)

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
            Hey, how are you | How are you doing | Are you well | How's life | You okay |
            Are you okay | You all right | Are you all right | You good | All good |
            How are you feeling | How have you been | Everything okay | You well
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
            I like you | Good answer | Correct | Perfect | You are clever | You are funny |
            You are great | That is correct | That's right | Amazing | You are nice | Awesome |
            I love you | You are cute | That was funny | Haha | Lol | 👍
            """
        ),
        ("Thank you, that is kind of you!",),
    ),
    (
        "agreement",
        phrases(
            """
            Ok | Okay | Yes | No | Sure | Alright | I see | Hmm | Fine | Maybe | Got it | Right |
            I understand | Of course | Yeah | Nope | Yep | Interesting | Oh | Aha
            """
        ),
        ("All right. What would you like to do next?",),
    ),
    (
        "blame",
        phrases(
            """
            That is wrong | Wrong | You are wrong | That's not right | No, that is wrong |
            Bad answer | You made a mistake | That is not correct | Are you sure | You are stupid |
            That makes no sense | You are useless | No, that's wrong | I don't believe you |
            That is nonsense | You are bad | You don't understand me | Try again
            """
        ),
        ("I am sorry. I am a small model and I make mistakes.",),
    ),
    (
        "prompting",
        phrases(
            """
            Say something | Tell me something | Tell me something interesting | Talk to me |
            Surprise me | What should we do | Let's talk | I want to talk | Can we talk |
            Are you there | Anyone there | What should I ask you | Start | Let's start | Go on |
            Continue | What now
            """
        ),
        ("I am here. Ask me to count, to spell a word, or to tell you a story.",),
    ),
    (
        "apology",
        phrases(
            """
            Sorry | I am sorry | I'm sorry | My mistake | Excuse me | Pardon | Oops |
            Sorry about that | I made a mistake | Forgive me | I apologise
            """
        ),
        ("No problem at all!",),
    ),
    (
        "welcome",
        phrases(
            """
            You are welcome | You're welcome | No problem | My pleasure | Don't mention it |
            Any time | Not at all | No worries
            """
        ),
        ("You are very kind!",),
    ),
    *(("about itself", asked, (reply,)) for reply, asked in ABOUT_ITSELF.items()),
)
