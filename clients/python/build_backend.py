"""Builds the package without any other package: a wheel is a zip file of the modules and three texts (PEP 517, 427)."""
import base64
import hashlib
import os
import re
import tarfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
NAME = "millrace"


def read(name):
    with open(os.path.join(HERE, name), "rb") as file:
        return file.read()


def project(field):
    return re.search(rf'^{field} = "(.*)"$', read("pyproject.toml").decode(), re.M)[1]


VERSION = project("version")
INFO = f"{NAME}-{VERSION}.dist-info"


def metadata():
    return (f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\nSummary: {project('description')}\n"
            f"Requires-Python: {project('requires-python')}\nDescription-Content-Type: text/markdown\n\n"
            ).encode() + read("README.md")


def modules():
    return sorted(f"{NAME}/{name}" for name in os.listdir(os.path.join(HERE, NAME)) if name.endswith((".py", ".typed")))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    files = {name: read(name) for name in modules()}
    files[f"{INFO}/METADATA"] = metadata()
    files[f"{INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: millrace\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{INFO}/RECORD"] = f"{record}{INFO}/RECORD,,\n".encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    base = f"{NAME}-{VERSION}"
    with tarfile.open(os.path.join(sdist_directory, f"{base}.tar.gz"), "w:gz") as archive:
        for name in ["pyproject.toml", "build_backend.py", "README.md", *modules()]:
            archive.add(os.path.join(HERE, name), f"{base}/{name}")
    return f"{base}.tar.gz"
