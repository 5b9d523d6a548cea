"""The words all names in the world are made of.

A name is FIRST_SECOND ("amber_river"). Every word is frequent in the training text, so that a byte-pair tokenizer makes it one
token in each of the forms in which it occurs; names of the validation and test sets are combinations never seen in training.
"""

FIRST = """
amber ancient arctic blue bold brave brick brisk broken bronze calm clay clear clever cold copper coral cosy crisp curved dark deep
dry dusty eager early east empty even fair fast fine firm flat fresh frozen gentle giant glad gold grand gray green happy heavy
hidden high hollow honest huge humble icy iron ivory jolly keen kind large lazy light little lively long loud low lucky narrow neat
new noble north odd old open orange outer pale plain polar proud pure purple quick quiet rapid rare
young zinc yellow wooden wise winter wild wide white west warm upper vast
""".split()

SECOND = """
acorn anchor apple arrow badge bakery barn basket beach bell berry bird boat bottle branch bread bridge bucket cabin cable camera candle
canyon castle cellar chain chair cherry circle city cliff cloud coast coin corner cradle creek crown desert door dragon drum eagle
engine falcon farm feather fence ferry field finch flame flower forest fox garden gate glacier glass grove hammer harbor hawk hill
horse house island jacket jungle kettle key kitchen ladder lake lamp lantern leaf lemon library lion maple market meadow melon
mill mirror moon mountain needle oak ocean olive orchard otter owl palace panda parrot path pebble pencil pepper piano pillow pine
planet pond portal rabbit raven ribbon ridge ring river road robin rocket roof rope saddle sail salmon school shell ship shore
silk snow spring star stone stream summit sun table temple tiger tower train tree tunnel valley village violin wagon wall wheel
willow window wolf
""".split()

# Verbs of function names, and the word a request uses for each (the same word: the tie is learnt, not reasoned).
VERBS = """
find get list book order send check count update create delete start stop open close move copy print build plan rate track share
search compare convert calculate measure schedule cancel
""".split()

# Parameter names with their kind; a kind is a JSON type (array and object carry the type of what they hold).
STRING_PARAMS = "name owner place title label topic author brand color group street team model country".split()
INTEGER_PARAMS = "days amount age year floor size weight level score limit rooms seats".split()
NUMBER_PARAMS = "price ratio speed length distance angle depth budget".split()
BOOLEAN_PARAMS = "urgent public active cheap secure daily shared".split()
ARRAY_PARAMS = "tags items guests parts colors numbers".split()
OBJECT_PARAMS = "options box range details".split()
ENUMS = {
    "unit": ["meter", "mile", "inch"],
    "mode": ["slow", "normal", "rapid"],
    "format": ["text", "table", "image"],
    "status": ["ready", "waiting", "done"],
    "sort": ["up", "down"],
    "season": ["autumn", "summer", "winter"],
}
OBJECT_KEYS = {"options": ["first", "last"], "box": ["width", "height"], "range": ["low", "high"], "details": ["color", "name"]}

DIRECTORIES = "src lib app core docs data conf tools".split()
ACTIONS = "fixed added removed cleaned".split()
