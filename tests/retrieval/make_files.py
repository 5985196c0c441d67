"""What the tests work on, made from nothing: PDFs byte by byte, Word files, a database."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import docx

from retrieval.database import Base, Database

_PAD = bytes.fromhex("28bf4e5e4e758a4164004e56fffa01082e2e00b6d0683e802f0ca9fe6453697a")


def pdf(
    pages: Sequence[str], *, password: str = "", user_password: str | None = None, title: str = ""
) -> bytes:
    """A PDF with a line of text for each line of each page; "" is a page without text.

    With a `password` it is encrypted by the standard's first method (40-bit RC4); where the
    `user_password` is another, the first only gives the right to change it.
    """
    file_id = b"0123456789abcdef"
    user = password if user_password is None else user_password
    key, entries = _encryption(password, user, file_id) if password else (None, b"")
    objects: list[bytes] = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{4 + 2 * i} 0 R" for i in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>")
    for i, page in enumerate(pages):
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * i)
        )
        shown = b"".join(b"(%s) Tj 0 -14 Td " % _escape(line) for line in page.split("\n") if line)
        content = b"BT /F1 11 Tf 50 780 Td " + shown + b"ET" if shown else b""
        if key is not None:
            content = _rc4(_object_key(key, 5 + 2 * i), content)
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))
    trailer = b"/Root 1 0 R /ID [<%s> <%s>]" % (file_id.hex().encode(), file_id.hex().encode())
    if title:
        objects.append(b"<< /Title (%s) >>" % _escape(title))
        trailer += b" /Info %d 0 R" % len(objects)
    if entries:
        objects.append(entries)
        trailer += b" /Encrypt %d 0 R" % len(objects)
    return assemble(objects, trailer)


def assemble(objects: list[bytes], trailer: bytes) -> bytes:
    out = b"%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    size = len(objects) + 1
    return out + b"trailer\n<< /Size %d %s >>\nstartxref\n%d\n%%%%EOF\n" % (size, trailer, start)


def _escape(text: str) -> bytes:
    encoded = text.encode("cp1252")
    return encoded.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _encryption(password: str, user_password: str, file_id: bytes) -> tuple[bytes, bytes]:
    padded = (user_password.encode() + _PAD)[:32]
    seed = (password.encode() + _PAD)[:32]
    owner = _rc4(hashlib.md5(seed).digest()[:5], padded)
    permissions = -4
    seed = padded + owner + permissions.to_bytes(4, "little", signed=True) + file_id
    key = hashlib.md5(seed).digest()[:5]
    user = _rc4(key, _PAD)
    entries = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P %d >>" % (
        owner.hex().encode(),
        user.hex().encode(),
        permissions,
    )
    return key, entries


def _object_key(key: bytes, number: int) -> bytes:
    return hashlib.md5(key + number.to_bytes(3, "little") + b"\0\0").digest()[:10]


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def word_file(path: Path) -> Path:
    """A title, a paragraph, a table between paragraphs, a second heading with a list."""
    document = docx.Document()
    document.core_properties.title = "A survey of ponds"
    document.add_heading("Ponds", level=1)
    document.add_paragraph("The survey counted birds.")
    table = document.add_table(rows=0, cols=2)
    for name, count in (("Pond", "Birds"), ("North pond", "17"), ("South pond", "4")):
        cells = table.add_row().cells
        cells[0].text, cells[1].text = name, count
    document.add_paragraph("The count took a day.")
    document.add_heading("Method", level=2)
    document.add_paragraph("Walk around once", style="List Bullet")
    document.save(str(path))
    return path


def many_pages(count: int) -> bytes:
    """A PDF with one short passage a page, each of other words."""
    return pdf([f"Page {n} tells of pond number {n * n}.\nIt is {n} m deep." for n in range(count)])


def make_database(folder: Path) -> Database:
    """A database with its tables in a folder that may be new."""
    folder.mkdir(parents=True, exist_ok=True)
    database = Database(f"sqlite:///{folder}/pageturn.db")
    Base.metadata.create_all(database.engine)
    return database
