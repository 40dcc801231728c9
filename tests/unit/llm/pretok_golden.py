#!/usr/bin/env python3
"""Prints pretok_golden.inc: how the published regular expressions cut difficult texts.

    pretok_golden.py > pretok_golden.inc        (needs python3-regex)

The expressions are those of the models' tokenizer.json, as an engine of its own runs them: a stage
cuts what the stage before left, matches are words, and what lies between matches is a word.
"""
import sys

try:
    import regex
except ImportError:  # bench/llm/agree takes the texts alone
    regex = None

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
CAPITALS, SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = (rf"[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}*{SMALL}+%s|"
         rf"[^\r\n\p{{L}}\p{{N}}]?{CAPITALS}+{SMALL}*%s|")
# deepseek-llm lists its letters.
LISTED = ("A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ"
           "ὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆ"
           "ﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
# GPT-2's expression cuts runs of several blanks as \s+(?!\S) and a single blank; llama.cpp leaves the
# last alternative out and so do the older conversions: between matches is one word either way.
RULES = {
    "gpt-2": [GPT2],
    "default": [r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", GPT2, r"[0-9][0-9][0-9]"],
    "starcoder": [r"\p{N}", GPT2],
    "llama-bpe": [rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}"],
    "qwen2": [rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{BLANKS}"],
    "seed-coder": [rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|{BLANKS}"],
    "qwen35": [rf"{ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
               rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{BLANKS}"],
    "gpt-4o": [CASED % (ENDINGS + "?", ENDINGS + "?") +
               rf"\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"],
    "tekken": [CASED % ("", "") + rf"\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{BLANKS}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
                    rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{BLANKS}"],
    "deepseek-llm": [r"[\r\n]", rf"\s?[{LISTED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
                     "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}+"],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}"],
}

TEXTS = [
    "", " ", "  ", "a", " a", "a ", "  a  b   c    ", "\n", "\n\n", " \n", "\n ", "\r\n\r\n x", "a\n\n\nb",
    "\t\tif (x) {\n\t\t\treturn;\n\t}", "    indented\n        more\n", "end of line   \n   begin",
    "Hello, World!", "hello World HELLO wORLD", "camelCaseWord XMLHttpRequest iPhone", "don't DON'T we'll WE'LL I'm",
    "it's 'quoted' ''s 'S 'LL x'd", "O'Neill's 'tis rock'n'roll", "1", "12", "123", "1234567", "3.14159 1,000,000",
    "a1b22c333d4444", "0x7fff 1e-9 ½ ² Ⅷ ٣٤٥٦", "2024-11-16T18:45:00Z", "a.b.c...d", "!!!???...", "foo/bar//baz\n/x",
    "https://example.org/a?b=c&d=%20#e", "<html><body class=\"x\">&amp;</body></html>", "x = y + z; // comment\n",
    "$100 + €50 = £?", "a`b``c```", "~^|<=>", "_under_score__", "\\n\\t\\\\", "C++ C# F*", "@user #tag",
    "Äpfel über Straße ÀÉÎÕÜ àéîõü", "ΑΒΓ αβγ Ωmega", "Привет, мир! ПРИВЕТ", "你好，世界！今天是2024年", "日本語のテキスト、カタカナ",
    "한국어 텍스트 입니다", "שלום עולם", "مرحبا بالعالم ١٢٣", "नमस्ते दुनिया", "ไทยภาษา", "ǅungla ǈ ǲ", "ʰʲˠ modifier",
    "e\u0301 n\u0303o Z\u0351\u036b\u0343", "\u0301alone \u0301 x\u0301y", "A\u0301B\u0301c\u0301 D\u0301", "\u0301\u0301", "-\u0301a",
    "😀😃 👩‍👩‍👧‍👦 🏳️‍🌈", "a😀b 😀c", "x²y³", "½cup 1½", "\u00a0nbsp\u00a0here", "\u3000全角\u3000", "\u2028line\u2029para",
    "a\u200bb\u200dc\ufeff", "tab\tand  spaces\t \tmixed", "\x0b\x0c vertical", "\x00nul\x01", "ﬁ ﬂ ﬀ", "ＡＢＣａｂｃ１２３",
    "ABCdef GHIjkl MNopQR ABCÄ äB", "ıİſ K Å", "'a 'b' 'ré", "  'll  's", "\n's\n'll", "a\r\nb\rc\n", "word\n\n  next   \n\n",
    ". . . , , ,", "(a)(b)[c]{d}", "「引用」『二重』", "—em dash– en", "…ellipsis…", "«guillemets»", "1st 2nd 3rd 4th",
    "ა ᲐႠ ꭰ ꞑ ꬰ 𝐀𝛼 𐐀𐐨 ʕʔ Ꭰ ﬓ ℕ\u10c7", "a　b　。　x　 ", "‘q’ “r”  ！？", "end  ", "end \n ",
    "aA aaA aAA AaA AAa", "漢字A漢字a漢字1", "A漢a", "Aʰ aʰB ʰA", "한A국b", "x\u0345Y", "٣a٤B", "߁߂ ߊߋ",
]


def split(stages, text):
    words = [text] if text else []
    for stage in stages:
        out = []
        for word in words:
            at = 0
            for match in regex.finditer(stage, word):
                if match.start() > at:
                    out.append(word[at:match.start()])
                if match.group():
                    out.append(match.group())
                at = match.end()
            if at < len(word):
                out.append(word[at:])
        words = out
    assert "".join(words) == text
    return words


def c_string(text):
    return "".join(f"\\{byte:03o}" if byte < 32 or byte > 126 or byte in b'"\\?' else chr(byte)
                   for byte in text.encode())


def main():
    sys.stdout.reconfigure(encoding="ascii")
    print(f"/* Printed by tests/unit/llm/pretok_golden.py with python3-regex {regex.__version__}: a rule, a text,\n"
          " * the bytes of each of its words. */")
    for name, stages in RULES.items():
        for text in TEXTS:
            lengths = ", ".join(str(len(word.encode())) for word in split(stages, text))
            print(f'{{"{name}", "{c_string(text)}", {len(text.encode())}, {{{lengths or 0}}}}},')


if __name__ == "__main__":
    main()
