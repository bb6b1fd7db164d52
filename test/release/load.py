"""Sends requests to the gateway until standard input ends, then prints their numbers as JSON. Runs inside the machine of the tests."""

import http.client
import json
import sys
import threading

ended = threading.Event()
lock = threading.Lock()
result = {"served": 0, "failures": []}


def send(keeps_connection: bool) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", 80, timeout=30)
    while not ended.is_set():
        try:
            connection.request("GET", "/", headers={"Host": "www.example.com"} | ({} if keeps_connection else {"Connection": "close"}))
            response = connection.getresponse()
            body = response.read()
            failure = None if (response.status, body) == (200, b"hello\n") else f"{response.status} {body[:60]}"
        except OSError as error:
            failure = repr(error)
            connection.close()
        except http.client.HTTPException as error:
            failure = repr(error)
            connection.close()
        with lock:
            if failure:
                result["failures"].append(failure)
            else:
                result["served"] += 1


threads = [threading.Thread(target=send, args=(keeps,)) for keeps in (True, True, False, False)]
for thread in threads:
    thread.start()
for line in sys.stdin:
    with lock:
        print(result["served"], flush=True)
ended.set()
for thread in threads:
    thread.join()
print(json.dumps(result))
