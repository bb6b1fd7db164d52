#!/usr/bin/env python3
"""Echoes each WebSocket message, on 127.0.0.1: echo.py PORT"""

import asyncio
import sys

from wsproto import ConnectionType, WSConnection
from wsproto.events import (AcceptConnection, BytesMessage, CloseConnection, Ping, RejectConnection, Request,
                            TextMessage)
from wsproto.extensions import PerMessageDeflate
from wsproto.utilities import RemoteProtocolError


async def echo(reader, writer):
    connection = WSConnection(ConnectionType.SERVER)
    parts = []
    try:
        while data := await reader.read(1 << 16):
            answer = b""
            try:
                connection.receive_data(data)
                for event in connection.events():
                    match event:
                        case Request():
                            answer += connection.send(AcceptConnection(extensions=[PerMessageDeflate()]))
                        case TextMessage() | BytesMessage():
                            parts.append(event.data)
                            if event.message_finished:
                                message = type(parts[0])().join(parts)
                                parts = []
                                answer += connection.send(type(event)(data=message))
                        case Ping() | CloseConnection():
                            answer += connection.send(event.response())
                            if isinstance(event, CloseConnection):
                                writer.write(answer)
                                await writer.drain()
                                return
            except RemoteProtocolError as error:
                writer.write(answer + connection.send(error.event_hint))
                await writer.drain()
                return
            writer.write(answer)
            await writer.drain()
    except ConnectionError:
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(echo, "127.0.0.1", int(sys.argv[1]))
    async with server:
        await server.serve_forever()


asyncio.run(main())
