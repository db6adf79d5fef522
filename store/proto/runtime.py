"""Message classes of the generated modules, from protobuf's C runtime alone.

The modules that protoc writes import the runtime's Python implementation and its text format, used or not: half of the
instructions that ``import click`` takes, in every command. Made here the same classes come without them.
"""

from collections.abc import MutableMapping

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.internal import api_implementation
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import Message


def define(module: str, names: MutableMapping[str, object], serialized: bytes) -> FileDescriptor:
    """Add the messages and enums of the ``serialized`` file descriptor to ``names``, the globals of ``module``, as protoc's code does.

    A message's class is made when somebody asks the module for it: of twenty a command meets two.
    """
    if api_implementation.Type() != "upb":
        return _define_by_builder(module, names, serialized)
    file = FileDescriptor("", "", serialized_pb=serialized)
    for name, enum in file.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update((value.name, value.number) for value in enum.values)

    def made(name: str) -> object:
        message = file.message_types_by_name.get(name)
        if message is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        names[name] = _message_class(module, message, "")
        return names[name]

    names["__getattr__"] = made
    return file


def _message_class(module: str, message: Descriptor, outer: str) -> type[Message]:
    from google.protobuf.pyext.cpp_message import GeneratedProtocolMessageType  # fails without the C runtime

    qualified = outer + message.name
    nested = {
        name: _message_class(module, inner, f"{qualified}.") for name, inner in message.nested_types_by_name.items()
    }
    members = {**nested, "DESCRIPTOR": message, "__module__": module, "__qualname__": qualified}
    made: type[Message] = GeneratedProtocolMessageType(message.name, (Message,), members)
    return made


def _define_by_builder(module: str, names: MutableMapping[str, object], serialized: bytes) -> FileDescriptor:
    from google.protobuf import descriptor_pool
    from google.protobuf.internal import builder

    file = descriptor_pool.Default().AddSerializedFile(serialized)
    builder.BuildMessageAndEnumDescriptors(file, names)
    builder.BuildTopDescriptorsAndMessages(file, module, names)
    return file
