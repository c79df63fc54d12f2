"""A keyboard that embeds the device library.

    python3 keyboard.py FOLDER SETTINGS INVITATION TEXTS

enrols, adds each line of the file TEXTS, stops a first session to show that it can, runs sessions until an update was sent, and predicts.
"""

import json
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from undertone_device import Condition, Device, DeviceError, Ended, Stage, Status  # noqa: E402

MAX_SESSIONS = 300


def take_part(device: Device) -> None:
    for _ in range(MAX_SESSIONS):
        outcome = device.run()
        print("session:", outcome.message, flush=True)
        if outcome.ended is Ended.REPORTED:
            print(f"loaded {outcome.down_bytes} bytes, sent {outcome.up_bytes} bytes")
            return
        time.sleep(max(0.0, outcome.wake_ms / 1000 - time.time()))
    raise SystemExit(f"no update was sent in {MAX_SESSIONS} sessions")


def main() -> None:
    folder, settings, invitation, texts = sys.argv[1:]
    stages: list[Stage] = []
    is_first = True

    def reached(stage: Stage) -> None:
        stages.append(stage)
        if is_first and stage is Stage.BOARD:
            device.stop()

    settings_of_app = json.loads(Path(settings).read_text())
    with Device.open(folder, settings_of_app, is_met=lambda _: True, reached=reached) as device:
        try:
            Device.open(folder, settings_of_app)
        except DeviceError as error:
            assert error.status is Status.FOLDER_OPEN, error
        device.enrol(invitation)
        number = device.add_all(Path(texts).read_text().splitlines())
        state = device.state()
        print(f"enrolled: {state.enrolled}; {number} texts, {state.withheld_examples} examples withheld")

        device.set_unmet(Condition.IDLE)
        assert device.run().ended is Ended.HOST_NOT_READY
        device.set_unmet(Condition(0))
        assert device.run().ended is Ended.STOPPED, "a callback stopped the session"
        is_first = False

        worker = threading.Thread(target=take_part, args=(device,))
        worker.start()
        worker.join()
        print("stages:", " ".join(stage.name for stage in dict.fromkeys(stages)))
        for row in device.participations():
            print(f"took part: round {row.round}, {row.progress.name}, {row.verdict.name}")
        measured = device.evaluate()
        print(f"evaluation: {measured.words} words, loss {measured.loss:.4f}")
        predictor = device.predictor()
    with predictor:
        assert predictor.model() == predictor.model()
        for word, probability in predictor.predict("we walk to the", 3):
            print(f"next word: {word} {probability:.6f}")


if __name__ == "__main__":
    main()
