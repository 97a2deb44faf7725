"""A host for tests: it does what its first argument names. Run without imports that cost time."""

import os
import signal
import subprocess
import sys
import time

ANSWER = '{"result_kind": "validated_progress", "n": 1}'


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def sleep_for_ever() -> None:
    while True:
        time.sleep(60)


def main() -> None:
    mode, *arguments = sys.argv[1:]
    if mode not in ("deaf", "hang_up"):
        request = sys.stdin.readline()
    match mode:
        case "answer":
            say(ANSWER + "\n")
        case "echo":
            say('{"result_kind": "echo", "request": ' + request + "}")
        case "deaf":
            say(ANSWER)
        case "hang_up":
            os.close(0)
            sys.exit(1)
        case "late":
            sleep_for_ever()
        case "late_answer":
            say(ANSWER)
            sleep_for_ever()
        case "stubborn":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say("ignoring")
            sleep_for_ever()
        case "twice":
            say(ANSWER + "\n" + ANSWER + "\n")
        case "flood_stdout":
            while True:
                sys.stdout.write("x" * 65536)
        case "flood_stderr":
            for _ in range(320):
                sys.stderr.write("secret " * 16384)
            say(ANSWER)
        case "signal":
            say(ANSWER)
            os.kill(os.getpid(), signal.SIGKILL)
        case "exit":
            sys.exit(3)
        case "answer_and_exit":
            say(ANSWER)
            sys.exit(3)
        case "half":
            say(ANSWER[:-5])
        case "number":
            say("7")
        case "nan":
            say('{"result_kind": "x", "n": NaN}')
        case "double_key":
            say('{"result_kind": "x", "result_kind": "y"}')
        case "bytes":
            sys.stdout.buffer.write(b'{"result_kind": "\xff"}')
        case "silent":
            pass
        case "fails":
            say('{"failure_kind": "rate_limited", "recovery_kind": "resume_session"}')
            sys.exit(1)
        case "fails_oddly":
            say('{"failure_kind": "on_fire"}')
        case "grandchild":
            # It holds the pipes and ignores SIGTERM; its pid is noted where the test looks.
            leave_behind(arguments[0], new_session=False)
            say(ANSWER)
        case "daemon":
            leave_behind(arguments[0], new_session=True)
            say(ANSWER)
        case "family":
            leave_behind(arguments[0], new_session=False)
            leave_behind(arguments[0], new_session=True)
            note(arguments[0], os.getpid())
            sleep_for_ever()


def leave_behind(notes: str, *, new_session: bool) -> None:
    code = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntime.sleep(3600)"
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=new_session)
    note(notes, child.pid)


def note(notes: str, pid: int) -> None:
    with open(notes, "a", encoding="ascii") as file:
        file.write(f"{pid}\n")


if __name__ == "__main__":
    main()
