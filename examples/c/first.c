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
 * in Lua, or al_admin_resize(). steps.c is a larger program: it handles signals, waits for
 * a broker that is not there yet, and checks its lock before each step. */
#include <amqplocks.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  char why[AL_MESSAGE_SIZE];
  const char *url = getenv("AMQP_URL");
  al_settings settings;
  al_settings_init(&settings);
  if (url && !al_settings_url(&settings, url, why)) return puts(why), 1;
  al_session *session = al_native_new(&settings);
  al_semaphore *images = al_semaphore_new(session, "images", NULL);

  al_lock *lock = al_acquire_wait(session, al_semaphore_acquire(images, NULL), NULL, why);
  if (!lock) return puts(why), 1;
  printf("in slot %d\n", al_lock_slot(lock));
  al_code code = al_op_wait(session, al_lock_release(lock), why);
  if (code != AL_OK) puts(why);

  al_lock_drop(lock);
  al_semaphore_drop(images);
  al_session_drop(session);
  return code != AL_OK;
}
