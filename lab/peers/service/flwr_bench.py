"""Flower's side of a check-in: each node asks the SuperLink for its message, and gets it.

The functions of the SuperLink's database are called in one process: no gRPC, no signatures, no authentication, which favours it.
"""

import argparse
import json
import tempfile
import time
from importlib.metadata import version

from flwr.app import Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.federation import NoOpFederationManager



def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1000)
    devices = parser.parse_args().devices
    with tempfile.TemporaryDirectory() as folder:
        factory = LinkStateFactory(f"{folder}/state.db", NoOpFederationManager(), ObjectStoreFactory())
        state = factory.state()
        nodes = []
        for number in range(devices):
            node = state.create_node("owner", "owner", number.to_bytes(32, "little"), 30.0)
            state.acknowledge_node_heartbeat(node, 3600.0)
            nodes.append(node)
        run = state.create_run(None, None, None, {}, NOOP_FEDERATION_ID, None, None, TaskType.SERVER_APP)
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = run, SUPERLINK_NODE_ID, 1
        for node in nodes:
            message = Message(RecordDict(), dst_node_id=node, message_type="train")
            message.metadata.__dict__["_message_id"] = f"{node:064x}"
            assert state.store_message_ins(message) is not None
        wall, cpu = time.perf_counter(), time.process_time()
        for node in nodes:
            assert len(state.get_message_ins(node, 1)) == 1
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    result = {
        "name": "flwr",
        "version": version("flwr"),
        "item": "pull",
        "devices": devices,
        "pulls_per_s": devices / wall,
        "pulls_per_cpu_s": devices / cpu,
    }
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    main()
