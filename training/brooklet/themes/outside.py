"""Words for the world outside the model's own, from which questions it cannot answer are made."""

from __future__ import annotations

from training.brooklet.text import phrases, words

PLACES = phrases(
    """
    France | Japan | Brazil | Germany | Italy | Spain | England | India | China | Egypt | Kenya |
    Mexico | Peru | Chile | Poland | Sweden | Finland | Greece | Turkey | Russia | Portugal |
    Vietnam | Thailand | Ireland | Austria | Belgium | Denmark | Hungary | Morocco | Nigeria |
    Argentina | South Africa | New Zealand | the United States | America | Europe | Africa | Asia |
    Paris | London | Rome | New York | Moscow | Vienna | Sydney | Chicago | Lisbon | Prague |
    Dublin | Athens | Cairo | Boston | Venice | Amsterdam | Hamburg | Texas | California |
    Antarctica | Hawaii | Mars | Jupiter | Venus | the Netherlands | Ukraine | Cuba | Korea
    """
)
FIGURES = phrases(
    """
    Mozart | Newton | Albert Einstein | Cleopatra | Shakespeare | Julius Caesar | Marie Curie |
    Galileo | Beethoven | Charles Darwin | Picasso | Aristotle | Plato | Gandhi | Columbus |
    Leonardo da Vinci | Abraham Lincoln | Queen Victoria | Homer | Dickens | Tesla | Edison |
    Bach | Michelangelo | Sherlock Holmes | Zeus | Robin Hood | Batman | Mickey Mouse
    """
)
TOPICS = phrases(
    """
    quantum physics | the stock market | photosynthesis | chess | the Roman empire | electricity |
    gravity | bitcoin | the internet | football | algebra | climate change | the human brain |
    machine learning | democracy | jazz | evolution | economics | philosophy | geometry | biology |
    chemistry | tennis | opera | yoga | meditation | marketing | the cold war |
    the French language | the Bible | the moon landing | ancient Egypt | world history |
    relativity | energy | magnetism | the law | religion | nuclear power | solar energy |
    global warming | recycling | cancer | diabetes | the immune system | medicine |
    the periodic table | astronomy | sleep | stress | happiness | poverty | racism | freedom |
    capitalism | the brain | blood pressure | artificial intelligence | neural networks |
    deep learning | Linux | Python | JavaScript | Docker | Kubernetes | SQL | HTML | Excel |
    Windows | Wikipedia | Google | Netflix | YouTube | Facebook | Amazon | Minecraft | Star Wars |
    Harry Potter | the Beatles | basketball | the Olympics | the European Union |
    the United Nations | World War II | the Middle Ages | the ice age | the universe | light |
    sound | heat | oxygen | carbon | DNA | bacteria | the ozone layer | inheritance tax |
    insurance | cryptography | grammar | mathematics | physics | geography
    """
)
THINGS = words(
    """
    computer car phone camera engine battery bicycle volcano earthquake rainbow tornado glacier
    planet comet atom virus cell bone muscle lung kidney tooth vaccine antibiotic whale shark
    spider snake penguin kangaroo octopus dinosaur mosquito camel giraffe elephant parrot
    sandwich pizza omelette salad burger curry cocktail wedding passport visa mortgage loan
    contract salary budget company startup lawyer doctor dentist president mayor king senator
    novel movie film song painting statue museum cathedral castle pyramid bridge tunnel airport
    hotel restaurant school university exam degree homework essay website server database
    algorithm compiler keyboard printer router television radio satellite rocket telescope
    microscope microwave fridge dishwasher vacuum lamp sofa carpet garden cactus tomato potato
    banana pineapple coconut guitar piano violin drum flute marathon goal puzzle lottery poker
    blockchain calculator transistor magnet laser hurricane desert jungle island ocean continent
    """
)
DEEDS = phrases(
    """
    bake bread | cook rice | change a tyre | fix a bicycle | lose weight | learn the guitar |
    write a letter of complaint | grow tomatoes | train a dog | sleep better | save money |
    find a job | learn to swim | build a house | install Linux | sort a list | read a file |
    write a test | open a bank account | apply for a visa | get a passport | remove a stain |
    paint a wall | repair a phone | make coffee | brew tea | cook spaghetti | bake a cake |
    stop smoking | learn Spanish quickly | pass an exam | study for a test | write a book |
    make new friends | clean the windows | wash a sweater | pack a suitcase | travel cheaply |
    buy a house | sell my car | rent a flat | plan a party | plan a wedding | raise a child |
    cut my hair | build muscles | run a marathon | cure a cold | treat a burn | calm down |
    deal with stress | give a speech | write a business plan | start a company | file my taxes |
    draw a horse | paint a portrait | take a good photo | play chess | win at poker |
    connect to a database | reverse a string | parse a file | deploy a website | use Docker |
    speed up my computer | reset my password | block a number | delete my account
    """
)
TRADES = words(
    """
    doctor mayor king queen president lawyer judge butcher tailor postman blacksmith carpenter
    priest nurse dentist soldier painter singer actor captain pilot plumber policeman
    inventor founder author director owner leader champion coach boss
    """
)
QUALITIES = phrases(
    """
    capital | population | currency | flag | history | national anthem | climate | area | height |
    price | age | weight | speed | size | president | language | economy | origin | meaning |
    purpose | temperature | structure | formula | value | most famous food | biggest city |
    highest mountain | largest lake | longest road | oldest university | main religion
    """
)
ADJECTIVES = words(
    """
    dangerous expensive healthy important useful poisonous legal illegal safe rare old big famous
    popular difficult real fast edible beautiful cheap harmful magnetic alive extinct
    """
)
HAPPENINGS = phrases(
    """
    the sun explodes | I eat too much salt | I mix bleach and vinegar | it rains for a year |
    the ice melts | I stop eating | a tree falls | the power goes out | I lose my passport |
    I miss my flight | time stops | the bees die | I drop my phone | water freezes |
    the economy crashes | I forget my password | I run out of money | I break my arm
    """
)
TROUBLES = phrases(
    """
    I have a headache | My back hurts | My car does not start | My phone is broken |
    I lost my keys | I have a cold | My computer is slow | My code does not work |
    I have an exam tomorrow | My neighbour is loud | My dog is ill | I cannot sleep |
    I need a new job | I want to lose weight | My boss is angry with me | I have a fever |
    I am planning a holiday | My roof is leaking | I want to learn piano | I burned my hand
    """
)
OTHER_TONGUES = words("Latin Korean Arabic Hindi Turkish Dutch Polish Finnish Swahili Hebrew Thai")
CODES = phrases(
    """
    print(x + 1) | for i in range(10): print(i) | def f(x): return x * 2 | SELECT * FROM users |
    while true do echo hi; done | const a = 5; | int main() { return 0; } | git push origin main |
    x = [1, 2, 3] | import os | console.log("hello") | ls -la | if (a > b) { swap(a, b); }
    """
)
GENRES = phrases(
    """
    an essay | an email | a letter | a report | a summary | a blog post | an article | a speech |
    a review | a script | a program | a novel | a tweet | a lesson plan | a business plan |
    a cover letter | a shopping list | a recipe | a function | a Python script | a paragraph |
    a presentation | a quiz | a product description | a press release | a slogan
    """
)
GOODS = phrases(
    """
    book | film | phone | laptop | restaurant | hotel | city to visit | present for my mother |
    holiday | recipe | podcast | game | car | camera | programming language | bank | doctor |
    gift for a friend | name for a baby | breakfast | wine | museum | school | diet | sport
    """
)
PLURALS = words(
    """
    cats dogs whales birds planets computers countries people teeth bones stars islands books
    languages atoms cells cars volcanoes doctors trees children spiders bees elephants sharks
    penguins robots batteries mountains lakes diamonds vaccines dreams dinosaurs clouds magnets
    """
)
ABILITIES = phrases(
    """
    fly | swim | sleep | see in the dark | eat chocolate | feel pain | live without water |
    cross a border | move | speak | survive winter | have a soul | remember faces | grow old |
    float | explode | run fast | climb trees | breathe | shine | change colour | dance
    """
)
UNITS = words("kilometres pounds inches litres euros dollars degrees ounces metres gallons")
