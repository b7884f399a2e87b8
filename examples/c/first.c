/* SPDX-License-Identifier: MIT
 * SPDX-FileCopyrightText: the amqp-locks authors
 *
 * The first program in C, without Lua: waits for a slot of the semaphore "images", prints its number, and releases it.
 * From the root of the checkout:
 *
 *     make lib && export PKG_CONFIG_PATH=$PWD/build/lib LD_LIBRARY_PATH=$PWD/build/lib
 *     cc -o first examples/c/first.c $(pkg-config --cflags --libs amqplocks) && ./first
 *
 * The broker is AMQP_URL, or on localhost. An administrator creates the semaphore before: conn:admin("images"):resize(3)
 * in Lua, or al_admin_resize(). worker.c is a larger program, which handles signals and checks its lock as it works. */
#include <amqplocks.h>
#include <stdio.h>
#include <stdlib.h>

static al_op *await(al_session *session, al_op *op) {
  while (!al_op_done(op)) al_native_wait(session, op);
  return op;
}

int main(void) {
  char why[AL_MESSAGE_SIZE];
  const char *url = getenv("AMQP_URL");
  al_settings settings;
  al_settings_init(&settings);
  if (url && !al_settings_url(&settings, url, why)) return puts(why), 1;
  al_session *session = al_native_new(&settings);
  al_semaphore *images = al_semaphore_new(session, "images", NULL);

  al_op *op = await(session, al_semaphore_acquire(images, NULL));
  al_lock *lock = al_op_lock(op);
  if (!lock) return puts(al_op_message(op)), 1;
  printf("in slot %d\n", al_lock_slot(lock));
  al_op_drop(await(session, al_lock_release(lock)));

  al_op_drop(op);
  al_lock_drop(lock);
  al_semaphore_drop(images);
  al_session_drop(session);
  return 0;
}
