"""Takes a picture of a page that a server keeps up to date. Usage: picture.py BROWSER URL FILE.png SECONDS

The browser is a Chromium, which gets commands and answers through pipes: JSON, and a zero byte after each message.
"""

import base64
import json
import os
import subprocess
import sys
import time

WIDTH, HEIGHT = 1440, 1000
# Where the browser expects its ends of the pipes.
COMMANDS, ANSWERS = 3, 4

browser, url, file, seconds = sys.argv[1:]
commands, our_commands = os.pipe()
our_answers, answers = os.pipe()


def connect():
    # By way of numbers that none of the ends has.
    os.dup2(commands, 30)
    os.dup2(answers, 31)
    os.dup2(30, COMMANDS)
    os.dup2(31, ANSWERS)


options = ["--headless", "--no-sandbox", "--no-zygote", "--disable-dev-shm-usage", "--hide-scrollbars"]
process = subprocess.Popen(
    [browser, *options, "--remote-debugging-pipe", f"--window-size={WIDTH},{HEIGHT}", "about:blank"],
    preexec_fn=connect,
    pass_fds=(COMMANDS, ANSWERS),
    stderr=subprocess.DEVNULL,
)
os.close(commands)
os.close(answers)
received = os.fdopen(our_answers, "rb")
calls = 0


def message():
    text = b""
    while not text.endswith(b"\0"):
        text += received.read(1) or sys.exit("the browser ended")
    return json.loads(text[:-1])


def call(method, session=None, **parameters):
    global calls
    calls += 1
    command = {"id": calls, "method": method, "params": parameters, **({"sessionId": session} if session else {})}
    os.write(our_commands, json.dumps(command).encode() + b"\0")
    # Other messages are events.
    while (answer := message()).get("id") != calls:
        pass
    if "error" in answer:
        sys.exit(f"{method}: {answer['error']}")
    return answer["result"]


try:
    target = call("Target.createTarget", url=url)["targetId"]
    page = call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
    call("Emulation.setDeviceMetricsOverride", page, **size)
    time.sleep(float(seconds))
    picture = call("Page.captureScreenshot", page, format="png")["data"]
    with open(file, "wb") as output:
        output.write(base64.b64decode(picture))
finally:
    process.kill()
