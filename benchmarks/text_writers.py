"""Texts of words and signs for which a token estimate is easily too low, drawn from a seed.

Languages that are rare in vocabularies, text that was read in a wrong encoding, matrices of
digits, and formats with many short tokens.
"""

from __future__ import annotations

import random
from collections.abc import Callable

Write = Callable[[random.Random, int], str]

WORDS = {
    "Estonian": (
        "aken algus andmed asukoht eemaldatud ei faili haldur hoiatus jaoks juba kasutaja kataloog "
        "keel kirjutamine klahv koos kui käsk leht lisatud loodud lubatud muutmine määratud "
        "nimekiri "
        "otsing puudub päring sisend sõnum tekst teade tundmatu töötlemine vaade viga väljund või "
        "õige ühendus"
    ),
    "Indonesian": (
        "ada adalah akan baris belum berhasil berkas bukan dalam daftar dengan diabaikan dibaca "
        "dihapus ditemukan gagal hapus harus isian jangan jika karena kesalahan ketika kosong "
        "masukan memuat menulis nama oleh pengguna peringatan perintah sebelum sudah tidak untuk"
    ),
    "Dutch": (
        "aangemaakt achtergrond afbeelding bestand bewerken bijwerken dezelfde doorgaan eerst "
        "gebruiker geen gekozen gelijktijdig gewijzigd hetzelfde instelling invoer kan klaar "
        "kopie "
        "lezen maken mislukt nieuw niet ongeldig onbekend opslaan overschrijven schrijven sleutel "
        "tijdens uitvoer verwijderd voorbeeld waarschuwing zoeken zonder"
    ),
    "Basque": (
        "aldaketa aurkitu bakarrik behar bidali datuak dokumentua eguneratu erabiltzailea errorea "
        "ezin fitxategia gaitu hasiera hautatu helbidea hizkuntza idatzi ikusi irakurri itzulpena "
        "kargatu kendu kokapena mezua orria sarrera sortu testua zehaztu zerrenda"
    ),
    "Greek": (
        "αλλαγή αναζήτηση άνοιγμα αποθήκευση αρχείο αυτό βοήθεια για γραμμή δεδομένα δεν διαγραφή "
        "είναι εικόνα έκδοση εντολή εξαίρεση επιλογή ευρετήριο η θέση κατάλογος κείμενο λάθος με "
        "μήνυμα να όνομα πίνακας προειδοποίηση σελίδα στο σφάλμα τίτλος το χρήστης"
    ),
    "Japanese": (
        "です ます した ない から まで ため 。 、 の を に は が プログラム データ ファイル 関数 "
        "設定 入力 カタカナ 漢字 時間 表示 確認 エラー 今日 明日 人"
    ),
    "Russian": "данные для ошибка файл не найден строка запись чтение пользователь слово система",
    "Hindi": "फ़ाइल नहीं मिली त्रुटि पाठ नाम सूची पृष्ठ चेतावनी के लिए में है और उपयोगकर्ता",
    "Georgian": "ფაილი ვერ მოიძებნა შეცდომა ტექსტი სახელი სია გვერდი გაფრთხილება არის და ენა",
    "Persian": "پرونده پیدا نشد خطا متن نام فهرست صفحه هشدار برای در است و کاربر زبان",
    "Chinese": "文件 没有 找到 错误 文本 名称 列表 页面 警告 用户 语言 设置 时间 数据 我们 可以",
    "Korean": "파일을 찾을 수 없습니다 오류 텍스트 이름 목록 페이지 경고 사용자 언어 설정",
    "French": "données élève créé été où être fenêtre clé supprimée début événement à côté",
    "Emoji": "😀 😂 🚀 🔥 👍 🎉 😎 🐍 📦 🧪 🌍 🍕",
}
"""Everyday words of each language."""
UNSPACED = frozenset({"Japanese", "Chinese", "Emoji"})
MISREAD = ("French", "Russian", "Hindi", "Georgian", "Persian", "Chinese", "Korean", "Emoji")
JOINED = (
    "👨‍👩‍👧‍👦",
    "👩🏽‍💻",
    "🏳️‍🌈",
    "👩‍❤️‍💋‍👨",
    "🧑🏿‍🚀",
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿",
)
LATEX = (
    r"\begin{{equation}} \frac{{\partial {a}}}{{\partial {b}}} = \sum_{{i={n}}}^{{\infty}} "
    r"\alpha_i^{{{n}}} \mathrm{{d}}{a} \\ \end{{equation}}" + "\n"
)


def repeat(write: Callable[[random.Random], str]) -> Write:
    """A writer of as many pieces as a text of so many bytes takes."""

    def written(dice: random.Random, size: int) -> str:
        pieces: list[str] = []
        while size > 0:
            pieces.append(write(dice))
            size -= len(pieces[-1].encode())
        return "".join(pieces)

    return written


def sentence(language: str) -> Callable[[random.Random], str]:
    words, gap = WORDS[language].split(), "" if language in UNSPACED else " "

    def write(dice: random.Random) -> str:
        some = gap.join(dice.choice(words) for _ in range(dice.randint(3, 12)))
        return some + dice.choice((". ", ", ", "\n", ": ") if gap else ("。", "、", "\n"))

    return write


def misread(write: Callable[[random.Random], str], encoding: str) -> Callable[[random.Random], str]:
    return lambda dice: write(dice).encode().decode(encoding, "replace")


def pieces_of(others: dict[str, Write]) -> Callable[[random.Random], str]:
    names = sorted(others)
    return lambda dice: others[dice.choice(names)](dice, dice.randint(20, 400))


def _digits(dice: random.Random) -> str:
    return " ".join(dice.choice("0123456789") for _ in range(28)) + "\n"


def _bits(dice: random.Random) -> str:
    return " ".join(dice.choice("01") for _ in range(64)) + "\n"


def _hex_dump(dice: random.Random) -> str:
    codes = " ".join(f"{dice.randrange(256):02x}" for _ in range(16))
    return f"{dice.randrange(2**20) * 16:08x}  {codes}\n"


def _latex(dice: random.Random) -> str:
    a, b = dice.sample(("x", "tree", "value", "window", "total", "y"), 2)
    return LATEX.format(a=a, b=b, n=dice.randrange(4_096))


def _made_up(dice: random.Random) -> str:
    syllables = dice.randint(2, 6)
    word = "".join(
        dice.choice("bcdfghjklmnpqrstvwxz") + dice.choice("aeiouyäöü") for _ in range(syllables)
    )
    return word + dice.choice((" ", " ", "-", "\n", ", "))


def writers() -> dict[str, Write]:
    """Writers by the kind of their text."""
    found = {
        "matrices of digits": repeat(_digits),
        "matrices of bits": repeat(_bits),
        "hex dump": repeat(_hex_dump),
        "LaTeX": repeat(_latex),
        "made-up words": repeat(_made_up),
        "joined emoji": repeat(lambda dice: dice.choice(JOINED)),
        "C1 control characters": repeat(lambda dice: chr(dice.randrange(0x80, 0xA0))),
        "random bytes as Latin-1": repeat(lambda dice: dice.randbytes(64).decode("latin-1")),
        **{f"{name} words": repeat(sentence(name)) for name in WORDS},
    }
    for name in MISREAD:
        for encoding in ("latin-1", "cp1252"):
            found[f"{name} as {encoding}"] = repeat(misread(sentence(name), encoding))
    return {**found, "pieces of many kinds": repeat(pieces_of(found))}
