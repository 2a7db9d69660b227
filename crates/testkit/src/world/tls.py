"""Ends TLS for a web server of a test and hands the bytes on as they are.

Owns the handshakes and their lines in the world's log. Started by `world::serve`; prints the port once it listens.
"""

import json
import select
import signal
import socket
import ssl
import sys
import threading

# Its end is no news.
signal.signal(signal.SIGINT, signal.SIG_DFL)
address, port, backend, certificate, key, log, label = sys.argv[1:]
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(certificate, key)
context.set_alpn_protocols(["http/1.1"])
# A name that the certificate lacks is the client's business.
context.sni_callback = lambda connection, name, _: setattr(connection, "asked_for", name)


def note(name, error):
    record = {"handshake": {"server": label or f"{address}:{port}", "name": name, "error": error}}
    with open(log, "a", buffering=1) as file:
        file.write(json.dumps(record) + "\n")


def relay(outside, inside):
    outside.setblocking(False)
    while True:
        ready = [outside] if outside.pending() else select.select([outside, inside], [], [])[0]
        if outside in ready:
            try:
                data = outside.recv(1 << 16)
            except ssl.SSLWantReadError:
                continue
            if not data:
                return
            inside.sendall(data)
        if inside in ready:
            data = inside.recv(1 << 16)
            if not data:
                return
            outside.settimeout(60)
            outside.sendall(data)
            outside.setblocking(False)


def serve(plain):
    outside = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
    try:
        outside.settimeout(60)
        outside.do_handshake()
    except OSError as error:
        note(getattr(outside, "asked_for", None), str(error))
        outside.close()
        return
    note(getattr(outside, "asked_for", None), None)
    inside = socket.create_connection(("127.0.0.1", int(backend)))
    try:
        relay(outside, inside)
    except OSError:
        pass
    inside.close()
    outside.close()


family = socket.AF_INET6 if ":" in address else socket.AF_INET
listener = socket.create_server((address, int(port)), family=family, backlog=128)
port = listener.getsockname()[1]
print(port, flush=True)
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()
