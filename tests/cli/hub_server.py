"""A hub on loopback that answers as Hugging Face's does, and misbehaves on demand.

Two servers: the hub knows repositories, revisions and checksums and redirects large files to the store, which knows bytes only. What
each was asked is in `requests`. Shapes of the answers: the hub's public API as huggingface_hub 1.x reads it (sha and siblings; ETag,
X-Linked-Etag, X-Linked-Size, X-Repo-Commit; X-Error-Code).
"""
import hashlib
import json
import re
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repo:
    def __init__(self, files, large=(".safetensors", ".gguf")):
        self.large = large
        self.revisions = {}
        self.commits = {}
        self.private_token = None  # 401 to everybody else
        self.gated_token = None  # files only: 403 or 401 with GatedRepo
        self.announced = {}  # file: (checksum, size) instead of the true ones
        self.extra_names = []  # in the listing only
        self.commit("main", files)

    def commit(self, revision, files):
        text = json.dumps([(name, sha256(data)) for name, data in sorted(files.items())])
        name = hashlib.sha1(text.encode()).hexdigest()
        self.commits[name] = dict(files)
        self.revisions[revision] = name
        return name

    def is_large(self, name):
        return name.endswith(self.large)


class Hub:
    """Use as a context manager. `store_faults`, `delay_s` and the like may be changed while it runs."""

    def __init__(self):
        self.repos = {}
        self.requests = []  # (server, method, path, headers)
        self.sent = {}  # bytes of file bodies by (server, path without query)
        self.fail_status = []  # statuses to answer the next file requests with, in order
        self.drop_after = None  # bytes of a body after which the connection is closed
        self.delay_s = 0  # before every 64 KiB of a body
        self.has_ranges = True
        self.change_etag = None  # file name: GET announces this checksum (HEAD the true one)
        self.corrupt = set()  # files whose bytes are not what is announced
        self.lock = threading.Lock()
        hub = self

        class HubHandler(Handler):
            role, owner = "hub", hub

        class StoreHandler(Handler):
            role, owner = "store", hub

        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), handler) for handler in (HubHandler, StoreHandler)]
        self.url, self.store_url = (f"http://127.0.0.1:{server.server_port}" for server in self.servers)

    def __enter__(self):
        for server in self.servers:
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_):
        for server in self.servers:
            server.shutdown()
            server.server_close()

    def bytes_sent(self, server="store"):
        with self.lock:
            return sum(count for (role, _), count in self.sent.items() if role == server)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle(self):
        try:
            super().handle()
        except (BrokenPipeError, ConnectionResetError):
            pass

    def do_HEAD(self):
        self.answer()

    def do_GET(self):
        self.answer()

    def answer(self):
        path = urllib.parse.urlsplit(self.path).path
        with self.owner.lock:
            self.owner.requests.append((self.role, self.command, path, dict(self.headers)))
        if self.role == "store":
            name, _, commit_and_repo = urllib.parse.unquote(path).lstrip("/").partition("@")
            commit, _, repo = commit_and_repo.partition("@")
            self.send_file(name, self.owner.repos[repo].commits[commit][name], {"ETag": '"the-store-has-its-own"'})
        elif path.startswith("/api/models/"):
            self.answer_listing(path)
        else:
            self.answer_resolve(path)

    def refuse(self, status, code="", message="said by the hub"):
        headers = {"X-Error-Message": message}
        if code:
            headers["X-Error-Code"] = code
        self.send(status, headers, b"<html>refused</html>")

    def send(self, status, headers, body=b""):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def find_repo(self, name):
        """None after an answer."""
        repo = self.owner.repos.get(name)
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo is None or (repo.private_token and token != repo.private_token):
            if token:
                self.refuse(404, "RepoNotFound", "Repository not found")
            else:
                self.refuse(401, "RepoNotFound", "Invalid username or password.")
            return None
        return repo

    def answer_listing(self, path):
        found = re.fullmatch(r"/api/models/(.+?)/revision/([^/]+)", path)
        if found is None:
            self.refuse(404)
            return
        repo = self.find_repo(found.group(1))
        if repo is None:
            return
        revision = urllib.parse.unquote(found.group(2))
        commit = repo.revisions.get(revision, revision)
        if commit not in repo.commits:
            self.refuse(404, "RevisionNotFound", "Invalid rev id")
            return
        names = [*repo.commits[commit], *repo.extra_names]
        body = {"id": found.group(1), "sha": commit, "private": False, "siblings": [{"rfilename": name} for name in names]}
        self.send(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def answer_resolve(self, path):
        found = re.fullmatch(r"/(.+?)/resolve/([^/]+)/(.+)", path)
        if found is None:
            self.refuse(404)
            return
        repo_name, commit, name = found.group(1), found.group(2), urllib.parse.unquote(found.group(3))
        repo = self.find_repo(repo_name)
        if repo is None:
            return
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repo.gated_token and token != repo.gated_token:
            self.refuse(403 if token else 401, "GatedRepo", f"Access to model {repo_name} is restricted")
            return
        commit = repo.revisions.get(commit, commit)
        if name not in repo.commits[commit]:
            self.refuse(404, "EntryNotFound", "Entry not found")
            return
        data = repo.commits[commit][name]
        checksum = sha256(data) if repo.is_large(name) else git_sha1(data)
        checksum, size = repo.announced.get(name, (checksum, len(data)))
        if self.command == "GET" and self.owner.change_etag == name:
            checksum = "0" * len(checksum)
        headers = {"X-Repo-Commit": commit}
        if repo.is_large(name):
            location = f"{self.owner.store_url}/{urllib.parse.quote(f'{name}@{commit}@{repo_name}')}?signature=abc"
            headers |= {"X-Linked-Etag": f'"{checksum}"', "X-Linked-Size": str(size), "ETag": '"of-the-pointer"', "Location": location}
            self.send(302, headers)
        else:
            self.send_file(name, data, headers | {"ETag": f'"{checksum}"'})

    def send_file(self, name, data, headers):
        if self.command == "GET" and self.owner.fail_status:
            self.send(self.owner.fail_status.pop(0), {})
            return
        if name in self.owner.corrupt:
            data = data[:-1] + bytes([data[-1] ^ 1])
        status, body = 200, data
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if wanted and self.owner.has_ranges:
            first, last = int(wanted.group(1)), int(wanted.group(2) or len(data) - 1)
            if first >= len(data):
                self.send(416, {"Content-Range": f"bytes */{len(data)}"})
                return
            body = data[first:last + 1]
            status, headers = 206, headers | {"Content-Range": f"bytes {first}-{first + len(body) - 1}/{len(data)}"}
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for begin in range(0, len(body), 65536):
            time.sleep(self.owner.delay_s)
            piece = body[begin:begin + 65536]
            self.wfile.write(piece)
            with self.owner.lock:
                key = (self.role, urllib.parse.urlsplit(self.path).path)
                self.owner.sent[key] = self.owner.sent.get(key, 0) + len(piece)
            if self.owner.drop_after is not None and begin + len(piece) >= self.owner.drop_after:
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
                return
