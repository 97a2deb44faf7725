"""The way to the core: one Node process, called from threads and from event loops."""

from .client import AsyncRuntimeClient, RuntimeClient, default_async_client, default_client

__all__ = ["AsyncRuntimeClient", "RuntimeClient", "default_async_client", "default_client"]
