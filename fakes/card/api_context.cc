// Exported calls: contexts.
#include "fakes/card/calls.h"
#include "fakes/card/cuda_abi.h"

namespace kv::card {
namespace {

// The context is gone: its streams, its plain allocations; mappings stay (recorded).
void destroy(Card& card, CUcontext context) {
  if (context == nullptr) return;
  card.streams.end(context, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  card.space.free_all_of(context);
}

CUresult check(Card& card, const void* result, CUdevice device) {
  if (result == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return card.has_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

}  // namespace

KVCARD_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call_card(Call::cuDevicePrimaryCtxRetain, device, [&](Card& card) {
    if (const CUresult code = check(card, context, device)) return code;
    *context = card.contexts.retain(device);
    card.accounts.count(&LedgerOwner::contexts, 1);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return call_card(Call::cuDevicePrimaryCtxRelease, device, [&](Card& card) {
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    CUcontext ended = nullptr;
    if (!card.contexts.release(device, &ended)) return CUDA_ERROR_INVALID_CONTEXT;
    destroy(card, ended);
    card.accounts.count(&LedgerOwner::contexts, -1);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return call_card(Call::cuDevicePrimaryCtxReset, device, [&](Card& card) {
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    std::uint64_t counts = 0;
    destroy(card, card.contexts.reset(device, &counts));
    card.accounts.count(&LedgerOwner::contexts, -static_cast<std::int64_t>(counts));
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return call_card(Call::cuDevicePrimaryCtxGetState, device, [&](Card& card) {
    if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!card.has_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = card.contexts.is_active(device) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxCreate_v2(CUcontext* context, unsigned /*flags*/, CUdevice device) {
  return call_card(Call::cuCtxCreate, device, [&](Card& card) {
    if (const CUresult code = check(card, context, device)) return code;
    const CUcontext made = card.contexts.create(device);
    if (!Contexts::push(made)) return CUDA_ERROR_OUT_OF_MEMORY;
    card.accounts.count(&LedgerOwner::contexts, 1);
    *context = made;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxDestroy_v2(CUcontext context) {
  return call_card(Call::cuCtxDestroy, key_of(context), [&](Card& card) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!card.contexts.knows(context) || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
    if (context->state() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return context->state();
    destroy(card, context);
    if (Contexts::current() == context) Contexts::set_current(nullptr);
    card.accounts.count(&LedgerOwner::contexts, -1);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return call_card(Call::cuCtxPushCurrent, key_of(context), [&](Card& card) {
    if (!card.contexts.knows(context)) return CUDA_ERROR_INVALID_CONTEXT;
    return Contexts::push(context) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

KVCARD_API CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return call_card(Call::cuCtxPopCurrent, 0, [&](Card&) {
    CUcontext popped = nullptr;
    if (!Contexts::pop(&popped)) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = popped;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxSetCurrent(CUcontext context) {
  return call_card(Call::cuCtxSetCurrent, key_of(context), [&](Card& card) {
    if (context != nullptr) {
      if (!card.contexts.knows(context)) return CUDA_ERROR_INVALID_CONTEXT;
      if (context->state() == CUDA_ERROR_CONTEXT_IS_DESTROYED) return context->state();
    }
    Contexts::set_current(context);
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxGetCurrent(CUcontext* context) {
  return call_card(Call::cuCtxGetCurrent, 0, [&](Card&) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = Contexts::current();
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxGetDevice(CUdevice* device) {
  return call_card(Call::cuCtxGetDevice, 0, [&](Card&) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUcontext context = Contexts::current();
    if (context == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = context->device;
    return CUDA_SUCCESS;
  });
}

KVCARD_API CUresult cuCtxSynchronize() {
  return call_in_context(Call::cuCtxSynchronize, 0, [](Card& card, CUcontext context) {
    return card.streams.synchronize(context);
  });
}

}  // namespace kv::card
