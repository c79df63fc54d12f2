"""Flower's side of check-ins and uploads, with the payloads of ours.

`pull` calls the functions of the SuperLink's database in one process: no gRPC, no signatures, no authentication, which favours the peer.
`upload` drives the SuperLink's own Fleet API over gRPC, without TLS: each node pulls its message, announces its reply and pushes the
objects of it. The replies are kept; nothing is clipped and added before the server application reads them.
"""

import argparse
import json
import multiprocessing
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import grpc
import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.fleet_pb2_grpc import FleetStub
from flwr.proto.message_pb2 import PushObjectRequest
from flwr.proto.node_pb2 import Node
from flwr.server.superlink.linkstate import LinkStateFactory
from flwr.supercore.constant import NOOP_FEDERATION_ID, TaskType
from flwr.supercore.grpc import GRPC_MAX_MESSAGE_LENGTH
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.object_store import ObjectStoreFactory
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.cli.flower_superlink import _run_fleet_api_grpc_rere
from flwr.superlink.federation import NoOpFederationManager


def superlink(folder, devices):
    """A SuperLink with a run and a message for each node."""
    objects = ObjectStoreFactory(f"{folder}/state.db")
    factory = LinkStateFactory(f"{folder}/state.db", NoOpFederationManager(), objects)
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
        message.metadata.__dict__["_message_id"] = message.object_id
        objects.store().preregister(run, get_object_tree(message))
        assert state.store_message_ins(message) is not None
    return factory, objects, run, nodes


def pull(devices):
    with tempfile.TemporaryDirectory() as folder:
        factory, _, _, nodes = superlink(folder, devices)
        state = factory.state()
        wall, cpu = time.perf_counter(), time.process_time()
        for node in nodes:
            assert len(state.get_message_ins(node, 1)) == 1
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"item": "pull", "devices": devices, "pulls_per_s": devices / wall, "pulls_per_cpu_s": devices / cpu}


def serve(pipe, devices):
    """The process of the SuperLink."""
    with tempfile.TemporaryDirectory() as folder:
        factory, objects, run, nodes = superlink(folder, devices)
        task = factory.state().get_tasks(run_ids=[run])[0].task_id
        token = factory.state().claim_task(task)
        assert token and factory.state().activate_task(task)
        server = _run_fleet_api_grpc_rere("127.0.0.1:0", factory, objects, False, None)
        before = time.process_time()
        pipe.send((server.bound_address, run, nodes))
        pipe.recv()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        pipe.send({"server_cpu_s": time.process_time() - before, "server_peak_mb": usage.ru_maxrss / 1000})
        server.stop(None)


def upload(devices, parameters, connections):
    context = multiprocessing.get_context("spawn")
    pipe, other = context.Pipe()
    process = context.Process(target=serve, args=(other, devices))
    process.start()
    address, run, nodes = pipe.recv()
    size = [("grpc.max_send_message_length", GRPC_MAX_MESSAGE_LENGTH), ("grpc.max_receive_message_length", GRPC_MAX_MESSAGE_LENGTH)]
    values = np.random.default_rng(1).standard_normal(parameters, dtype=np.float32)

    def answer(part):
        with grpc.insecure_channel(address, size) as channel:
            stub = FleetStub(channel)
            for number in part:
                node = Node(node_id=nodes[number])
                pulled = stub.PullMessages(PullMessagesRequest(node=node))
                asked = message_from_proto(pulled.messages_list[0])
                # Every update differs, as updates do: equal objects are stored once.
                mine = values.copy()
                mine[0] = number
                reply = Message(RecordDict({"arrays": ArrayRecord({"update": Array(mine)})}), reply_to=asked)
                reply.metadata.__dict__["_message_id"] = reply.object_id
                reply.metadata._src_node_id = nodes[number]
                pushed = stub.PushMessages(
                    PushMessagesRequest(node=node, messages_list=[message_to_proto(reply)], message_object_trees=[get_object_tree(reply)])
                )
                objects = get_all_nested_objects(reply)
                for name in pushed.objects_to_push:
                    stored = stub.PushObject(
                        PushObjectRequest(
                            node=node, run_id=run, object_id=name, object_content=objects[name].deflate(), session_id=pushed.session_id
                        )
                    )
                    assert stored.stored

    wall = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        for done in [pool.submit(answer, range(at, devices, connections)) for at in range(connections)]:
            done.result()
    wall = time.perf_counter() - wall
    pipe.send(None)
    server = pipe.recv()
    process.join()
    gigabytes = devices * parameters * 4 / 1e9
    return {
        "item": "upload",
        "devices": devices,
        "parameters": parameters,
        "connections": connections,
        "uploads_per_s": devices / wall,
        "gb_per_s": gigabytes / wall,
        "server_cpu_ns_per_byte": server["server_cpu_s"] / gigabytes,
        **server,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--parameters", type=int, default=999_968)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--only", choices=["pull", "upload"])
    options = parser.parse_args()
    items = {
        "pull": lambda: pull(options.devices),
        "upload": lambda: upload(options.devices, options.parameters, options.connections),
    }
    for name, item in items.items():
        if options.only in (None, name):
            print("RESULT " + json.dumps({"name": "flwr", "version": version("flwr"), **item()}), flush=True)


if __name__ == "__main__":
    main()
