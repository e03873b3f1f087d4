"""Reads the files of a store as docs/format.md describes them, from its tables: what it says is checked by that. Sums
are not checked."""
import os
import re
import struct

FIRST, LAST, SEAL, SKIP = 1, 2, 4, 8


class Format:
    """The tables of the page."""

    def __init__(self, page):
        with open(page, encoding="utf-8") as file:
            text = file.read()
        records = text.split("<!-- begin: tools/record-tables -->")[1]
        kinds, fixed, optional = re.findall(r"(?:^\|.*\n)+", records, re.M)[:3]
        self.kinds = {int(row[0]): (row[1], row[3].replace("`", "").split()) for row in self.rows(kinds)}
        self.encoding = {row[0].strip("`"): row[1] for row in self.rows(fixed)}
        self.optional = [(int(row[0]), row[1].strip("`"), row[2]) for row in self.rows(optional)]
        self.groups = {name: re.findall(r"`(\w+)` \(([^)]+)\)", line)
                       for name, line in re.findall(r"^- `(\w+…)`: (.*)$", records, re.M)}
        within, later = re.search(r"two each: (.*?)\. Later .*?default: (.*?)\.", records).groups()
        self.policies, self.later = ([f"policy:{name}" for name in names.split(", ")] for names in (within, later))

    @staticmethod
    def rows(table):
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.replace("\\|", "").splitlines()[2:]]


class Head:
    """The bytes of a record, read from the front."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        part = self.data[self.at:self.at + size]
        if len(part) != size:
            raise ValueError("the record ends within a field")
        self.at += size
        return part

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def field(self, encoding):
        if encoding == "varint":
            return self.varint()
        if encoding == "size, bytes":
            return self.take(self.varint())
        if encoding.startswith("none"):
            return True
        size = {"u64": 8, "1 byte": 1}.get(encoding) or int(encoding.split()[0])
        part = self.take(size)
        return int.from_bytes(part, "little") if size <= 8 else part


def two(name):
    return 2 if name in ("policy:backoff", "policy:retention") else 1


def read_record(form, data):
    head = Head(data)
    number, bits, when = head.take(1)[0], head.take(1)[0], head.field("6 bytes")
    name, fields = form.kinds[number]
    record = {"kind": name, "kind number": number, "time_ms": when}
    for field in fields:
        if field not in form.groups:
            record[field] = head.field(form.encoding[field])
            continue
        record.update({f"{field}{member}": head.field(encoding) for member, encoding in form.groups[field]})
        if field == "stage…":
            record.update({policy: [head.varint() for _ in range(two(policy))] for policy in form.policies})
    for bit, field, encoding in form.optional:
        if bits >> bit & 1:
            record[field] = head.field(encoding)
    for policy in form.later if "stage…" in fields else ():
        if head.at < len(data):
            record[policy] = [head.varint()]
    if head.at != len(data):
        raise ValueError(f"{len(data) - head.at} bytes are left of a {name} record")
    return record


def read_segment(form, path):
    """Records of the segment, each with its body."""
    with open(path, "rb") as file:
        data = file.read()
    magic, version, number, size, capacity = struct.unpack_from("<8sI4xQQQ", data)
    if magic != b"MRSEGMNT" or version != 1 or int(os.path.basename(path)[:16], 16) != number or not size >= capacity:
        raise ValueError(f"{path} is no segment")
    at = 64
    while at + 32 <= len(data):
        head_size, body_size, flags = struct.unpack_from("<III", data, at)
        if flags & 0xFFFF0000 != 0x6D720000:
            break
        if not flags & (SEAL | SKIP):
            head = data[at + 32:at + 32 + head_size]
            yield read_record(form, head), data[at + 32 + head_size:at + 32 + head_size + body_size]
        if flags & SEAL:
            break
        at += (32 + head_size + body_size + 7) // 8 * 8


def read_store(page, folder):
    """All records of a store, of all its shards, with their bodies."""
    form = Format(page)
    for where, below, names in sorted(os.walk(folder)):
        below.sort()
        if "store" in names:
            with open(os.path.join(where, "store"), "rb") as file:
                slots = file.read()
            if any(struct.unpack_from("<8sI", slots, at) != (b"MILLRACE", 1) for at in (0, 512)):
                raise ValueError(f"{where}/store has another magic or format")
        for name in sorted(name for name in names if name.endswith(".seg")):
            yield from read_segment(form, os.path.join(where, name))
