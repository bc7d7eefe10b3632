"""Names and types in C of what operations call by names of their own."""

ATTR_C = {"int": "int64_t", "double": "double", "bool": "int32_t", "dtype": "weft_dtype", "ints": "const int64_t*",
          "doubles": "const double*", "string": "const char*"}
KEYWORDS = set("""auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while alignas alignof
and asm bitand bitor bool catch class compl concept constexpr delete explicit export false friend mutable namespace new not
operator or private protected public requires template this throw true try typeid typename using virtual wchar_t xor""".split())


def safe(name):
    """A name that is a word of C or C++ gets an underscore, in every language."""
    return name + "_" if name in KEYWORDS else name
