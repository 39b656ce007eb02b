#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares sizes and offsets of members of each kernel's arguments on the host with those on the device.

    tests/cuda/argument_layouts.py OBJECT... PTX...

    OBJECT    of nvcc, with --no-compress -Xcompiler=-g: PTX as text, and debug information of the host
    X.ptx     of nvcc -G -ptx: the kernels of all objects, with debug information of the device

The runtime copies as many bytes of an argument as the device code declares. Where host and device lay out a type differently,
as nvcc 13 does with [[no_unique_address]], a kernel reads members at other offsets than the host wrote them to, and nothing
reports it. The two compilers say what they do in their debug information: the host's in that of the function that launches a
kernel (its stub), the device's in that of the kernel. Members are compared by name, private ones too, and those of bases, of
members and of elements of arrays. Empty bases are left out, since nothing of them is read, and so is what pointers point to. The
sizes must also be those of the PTX in the object, which is what runs.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

SCALARS = {"8": 1, "16": 2, "32": 4, "64": 8}
CLASSES = ("class_type", "structure_type", "union_type")
OTHER_NAMES = ("typedef", "const_type", "volatile_type")
ADDRESSES = ("pointer_type", "reference_type", "rvalue_reference_type")


def ptx_sizes(path):
    """kernel -> sizes of its arguments, of the PTX that stands in the file as text."""
    text = Path(path).read_bytes().decode("latin-1")
    kernels = {}
    for name, arguments in re.findall(r"\.entry (\w+)\s*\(([^{;]*?)\)", text):
        kernels[name] = [int(size) if size else SCALARS[bits] for bits, size in
                         re.findall(r"\.param (?:\.align \d+ )?\.[a-z](\d+) \w+(?:\[(\d+)\])?", arguments)]
    return kernels


def assembled(ptx, folder):
    """An object of the host with the debug information of PTX, where it is lines like ".b8 5,17" and ".b64 label" in braces."""
    lines = []
    for section, content in re.findall(r"^\t\.section\t(\.debug_(?:abbrev|info))\s+\{\n(.*?)^\t\}", Path(ptx).read_text(),
                                       re.MULTILINE | re.DOTALL):
        content = re.sub(r"^(\.b\d+) [^\d-].*", r"\1 0", content, flags=re.MULTILINE)  # addresses of code are not asked for
        for directive, replacement in ((".b8", ".byte"), (".b16", ".2byte"), (".b32", ".4byte"), (".b64", ".8byte")):
            content = content.replace(directive + " ", replacement + " ")
        lines.append(f'.section {section},"",@progbits\n{content}')
    result = Path(folder) / "debug.o"
    subprocess.run(["as", "-o", result, "-"], input="".join(lines), check=True, text=True)
    return result


class Entry:
    """An entry of debug information."""

    def __init__(self, tag, text):
        self.tag, self.text, self.children = tag, text, []

    def get(self, attribute):
        found = re.search(rf"DW_AT_{attribute}\s*: (?:\([^)]*\): )?(.*)", self.text)
        return found and found[1].strip()

    def number(self, attribute):
        """Stands there, or is what an expression adds."""
        value = self.get(attribute)
        found = re.search(r"^\w+$|(?<=\(DW_OP_plus_uconst: )\d+(?=\)$)", value or "0")
        if not found:
            raise ValueError(f"{self.tag} {self.get('name')}: no number is its {attribute}, {value}")
        return value and int(found[0], 0)


class Types:
    """The debug information of an object."""

    def __init__(self, path):
        dump = subprocess.run(["readelf", "--debug-dump=info", path], check=True, capture_output=True, text=True).stdout
        self.entries, above = {}, []
        for found in re.finditer(r"^ <(\d+)><(\w+)>: .*\(DW_TAG_(\w+)\)\n((?: {4}.*\n)*)", dump, re.MULTILINE):
            entry = self.entries[found[2]] = Entry(found[3], found[4])
            del above[int(found[1]):]
            if above:
                above[-1].children.append(entry)
            above.append(entry)

    def of(self, entry):
        """The type of an entry, without names and qualifiers."""
        result = self.entries[entry.get("type")[3:-1]]
        return self.of(result) if result.tag in OTHER_NAMES else result

    def size(self, entry):
        """Bytes of a type."""
        if entry.tag == "array_type":
            size = self.size(self.of(entry))
            for extent in entry.children:
                count, last = extent.number("count"), extent.number("upper_bound")
                size *= last + 1 if count is None else count
            return size
        size = 8 if entry.tag in ADDRESSES else entry.number("byte_size")
        if size is None:
            raise ValueError(f"{entry.tag} {entry.get('name')} has no size")
        return size

    def members(self, entry, path="", begin=0):
        """Yields (path, first bit, bits) for all members of a type that begins at this bit."""
        if entry.tag == "array_type":  # where the other elements are follows from its size
            yield from self.members(self.of(entry), path + "[]", begin)
        for part in entry.children if entry.tag in CLASSES else ():
            if part.tag not in ("inheritance", "member") or part.get("external"):  # a static member is external
                continue
            name, inside, at = part.get("name") or "", self.of(part), begin + 8 * (part.number("data_member_location") or 0)
            if part.tag == "inheritance" or name.startswith("__b_"):  # so nvcc names a base
                yield from self.members(inside, path, at)
                continue
            bits, first = part.number("bit_size"), part.number("data_bit_offset")
            if bits is None:
                bits = 8 * self.size(inside)
            elif first is not None:
                at = begin + first
            else:  # until DWARF 3 counted from the upper end
                at += 8 * (part.number("byte_size") or self.size(inside)) - part.number("bit_offset") - bits
            yield f"{path}.{name}", at, bits
            yield from self.members(inside, f"{path}.{name}", at)

    def arguments(self, kernel_of):
        """kernel -> (size, members) of each argument.

        kernel_of: says of the entry of a function whose arguments it has, or None.
        """
        kernels = {}
        for function in self.entries.values():
            kernel = function.tag == "subprogram" and kernel_of(function)
            if not kernel:
                continue
            try:
                types = [self.of(part) for part in function.children if part.tag == "formal_parameter"]
                # large ones are passed to a stub by reference
                types = [self.of(type) if type.tag == "reference_type" else type for type in types]
                kernels[kernel] = [(self.size(type), sorted(self.members(type), key=lambda member: member[0])) for type in types]
            except ValueError as error:
                sys.exit(f"{kernel}: {error}")
        return kernels


def kernel_of_stub(function):
    found = re.match(r"__device_stub_(_Z\w+)$", function.get("name") or "")
    return found and found[1]


def device_arguments(path):
    """The same of the device, of PTX with debug information."""
    kernels = ptx_sizes(path)
    with tempfile.TemporaryDirectory() as folder:
        types = Types(assembled(path, folder))
    return types.arguments(lambda function: name if (name := function.get("MIPS_linkage_name")) in kernels else None)


def place(member):
    path, begin, bits = member
    return f"{path[1:]} of {bits} bits at {begin // 8}" + (f" and {begin % 8} bits" if begin % 8 else "")


def differences(sizes, host, device):
    """Yields what is wrong with the arguments of a kernel."""
    if host is None:
        yield "no debug information of its stub; compile with -Xcompiler=-g"
    elif [size for size, _ in host] != sizes:
        yield f"arguments of {[size for size, _ in host]} bytes on the host, {sizes} on the device"
    elif device is None:
        yield "no debug information of the device; give the PTX of nvcc -G -ptx"
    elif [size for size, _ in device] != sizes:
        yield f"arguments of {sizes} bytes, {[size for size, _ in device]} with -G"
    else:
        for number, ((_, here), (_, there)) in enumerate(zip(host, device)):
            if len(here) != len(there):
                yield f"argument {number} has {len(here)} members on the host, {len(there)} on the device"
            else:
                yield from (f"argument {number} has {place(one)} on the host, {place(other)} on the device"
                            for one, other in zip(here, there) if one != other)


def main():
    device, objects, compared, members, wrong = {}, [], 0, 0, []
    for path in sys.argv[1:]:
        if path.endswith(".ptx"):
            device.update(device_arguments(path))
        else:
            objects.append(path)
    for path in objects:
        kernels, host = ptx_sizes(path), Types(path).arguments(kernel_of_stub)
        if not kernels:
            wrong.append(f"{path}: no PTX as text; compile with --no-compress")
        for name, sizes in kernels.items():
            wrong += [f"{name}: {text}" for text in differences(sizes, host.get(name), device.get(name))]
            compared += 1
            members += sum(len(inside) for _, inside in host.get(name, []))
    if wrong or not compared:
        sys.exit("\n  ".join(["arguments of kernels:", *(wrong or ["no kernels found"])]))
    print(f"{compared} kernels have arguments of the same sizes on host and device, with {members} members at the same offsets")


if __name__ == "__main__":
    main()
